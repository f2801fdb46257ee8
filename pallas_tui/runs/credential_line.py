"""One line of the table of requests and their credentials."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pallas.model import QuestionAnswered, QuestionAsked

from ..records.question_text import answer_word, person

Source = Literal["caller", "forwarded", "configured", "none"]
"""``caller``: the credential that a run was asked with; the others are those of AuthHop."""


@dataclass(frozen=True, slots=True)
class CredentialLine:
    """One request in the table: ``source`` says where its credential came from, never its value.

    ``depth`` is its indentation. ``runs`` are the ids of its run and of the runs above it. ``outcome`` is set
    for the request that began a run, ``status`` for one to a downstream: the HTTP status, None when there was
    no answer; then ``caller`` is the caller of the run, and ``variable`` the one that a configured key was
    read from. ``claims`` are those of its token. ``seconds`` is the time that the run or the calls of
    ``tool`` took, None until they are over. ``parts`` are the requests of a line that stands for those by
    which a connection is made and kept. ``findings`` are the reasons to look at it, in words.
    ``asked`` is the answer to a question to a person, which is a line too; ``waits`` while there is none.
    """

    key: tuple[str, int]
    depth: int
    at: float
    runs: tuple[str, ...]
    sender: str
    to: str
    source: Source
    fingerprint: str = ""
    audience: tuple[str, ...] = ()
    expires_at: float | None = None
    claims: tuple[tuple[str, str], ...] = ()
    variable: str = ""
    method: str = ""
    tool: str = ""
    seconds: float | None = None
    parts: tuple[str, ...] = ()
    status: int | None = None
    outcome: str = ""
    times: int = 1
    findings: tuple[str, ...] = ()
    caller: str = ""
    asked: str = ""

    @property
    def run_id(self) -> str:
        """The run it belongs to."""
        return self.runs[0]

    @property
    def answer(self) -> str:
        """The result in a word: the outcome of the run, the answer of a person, or the HTTP status."""
        return self.outcome or self.asked or ("no answer" if self.status is None else str(self.status))

    def matches(self, words: Iterable[str]) -> bool:
        """Return whether every one of the lower-case ``words`` matches.

        ``agent:`` matches its sender (or the agent of a run); ``to:`` ``source:`` ``status:`` ``key:``
        ``run:`` match that column only; any other word matches all of them.
        """
        return all(self._matches(word) for word in words)

    def _matches(self, word: str) -> bool:
        name, colon, wanted = word.partition(":")
        if colon and (parts := self._parts(name)) is not None:
            return any(wanted in part.lower() for part in parts)
        texts = (self.sender, self.to, self.source, self.fingerprint, self.method, self.answer, self.variable)
        claims = (text for _, text in self.claims)
        more = (f"{self.to}/{self.tool}", *self.audience, *claims, *self.parts, *self.findings, *self.runs)
        return any(word in text.lower() for text in (*texts, *more))

    def _parts(self, name: str) -> tuple[str, ...] | None:
        match name:
            case "agent":
                return (self.to,) if self.outcome else (self.sender,)
            case "to":
                return (self.to,)
            case "source":
                return (self.source,)
            case "status":
                return (self.answer,)
            case "key":
                return (self.fingerprint,)
            case "run":
                return self.runs
        return None


def question_line(
    place: int,
    asked: QuestionAsked,
    answered: QuestionAnswered | None,
    *,
    runs: tuple[str, ...],
    depth: int,
    caller: str,
) -> CredentialLine:
    """Return the line of a question to a person: who answered is shown in place of a request's receiver."""
    by = person(answered.by) if answered is not None and not answered.reason else ""
    return CredentialLine(
        key=(runs[0], -place),
        depth=depth,
        at=asked.at,
        runs=runs,
        sender=asked.agent,
        to=by or "a person",
        source="none",
        method="question",
        tool=asked.tool,
        seconds=max(0.0, answered.at - asked.at) if answered is not None else None,
        asked=answer_word(answered) if answered is not None else "waits",
        caller=caller,
    )
