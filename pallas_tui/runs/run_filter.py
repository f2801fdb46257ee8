"""The filter of runs: words, and fields as in ``agent:research -outcome:ok "two words"``."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .feed_remark import FeedRemark
from .feed_run import EARLIER, FeedRun

FIELDS: Final = ("agent", "caller", "surface", "outcome", "tool", "run", "trace", "replica")
OUTCOMES: Final = ("ok", "error", "cancelled", "running", "unknown")
HINT: Final = 'words, agent: caller: surface: outcome: tool: run: trace: "…" -not'


@dataclass(frozen=True, slots=True)
class Term:
    """One condition on a run; ``field`` is empty for a word that may stand anywhere."""

    text: str
    field: str = ""
    negated: bool = False

    def matches(self, run: FeedRun) -> bool:
        """Return whether the run has it; ``negated`` is not looked at here."""
        match self.field:
            case "":
                return _anywhere(run, self.text)
            case "agent":
                return self.text in run.agent.lower()
            case "caller":
                # For a run that another one called, the caller is that one's agent.
                above = run.parent.agent if run.parent is not None else ""
                return any(
                    self.text in each.lower() for each in (run.caller, run.principal, run.identity, above)
                )
            case "surface":
                return run.surface == self.text
            case "outcome":
                return run.state == self.text
            case "tool":
                return any(
                    self.text in f"{step.label} {step.name}".lower() for step in run.steps if step.call_id
                )
            case "replica":
                return bool(run.replica) and run.replica.startswith(self.text)
            case "run":
                return run.id.startswith(self.text)
            case _:
                return run.trace_id.startswith(self.text)


@dataclass(frozen=True, slots=True)
class RunQuery:
    """All of its terms must hold. ``mistake`` describes a mistake in the text, and its fix."""

    terms: tuple[Term, ...] = ()
    mistake: str = ""

    def __bool__(self) -> bool:
        return bool(self.terms)

    def excludes(self, run: FeedRun) -> bool:
        """Return whether a term with a minus matches: then nothing nested in the run is shown either."""
        return any(term.negated and term.matches(run) for term in self.terms)

    def matches(self, run: FeedRun) -> bool:
        """Return whether the run matches all terms."""
        return all(term.matches(run) is not term.negated for term in self.terms)


def fits_remark(query: RunQuery, remark: FeedRemark) -> bool:
    """Return whether a line that is no run matches all terms; fields that only runs have match none."""
    for term in query.terms:
        if term.field in ("", "agent"):
            found = term.text in (remark.agent.lower() if term.field else remark.words)
        else:
            found = False
        if found is term.negated:
            return False
    return True


def parse(text: str) -> RunQuery:
    """Parse ``text``, ignoring case; with a mistake the query has no terms."""
    terms: list[Term] = []
    try:
        for negated, field, value in _tokens(text):
            if (term := _term(negated, field, value)) is not None:
                terms.append(term)
    except _MistakeError as mistake:
        return RunQuery((), str(mistake))
    return RunQuery(tuple(terms))


class _MistakeError(Exception):
    pass


def _tokens(text: str) -> Iterator[tuple[bool, str, str]]:
    """Iterate over minus, field and value of each token; a token without a field has the empty one."""
    rest = text.strip()
    while rest:
        negated = rest.startswith("-") and not rest[1:2].isspace() and len(rest) > 1
        rest = rest[negated:]
        head = rest.split(None, 1)[0]
        field, colon, _ = head.partition(":")
        if colon and field.isalpha() and not head.startswith('"'):
            rest = rest[len(field) + 1 :]
        else:
            field = ""
        if rest.startswith('"'):
            value, quote, rest = rest[1:].partition('"')
            if not quote:
                raise _MistakeError('a closing " is missing')
        elif not rest or rest[0].isspace():
            value = ""
        else:
            value = rest.split(None, 1)[0]
            rest = rest[len(value) :]
        yield negated, field.lower(), value.lower()
        rest = rest.lstrip()


def _term(negated: bool, field: str, value: str) -> Term | None:
    if field and field not in FIELDS:
        known = ", ".join(FIELDS)
        raise _MistakeError(f'there is no field {field}: (known: {known}); "quotes" make words of it')
    if field and not value:
        raise _MistakeError(f"a word is missing after {field}:")
    if field == "outcome":
        fitting = [each for each in OUTCOMES if each.startswith(value)]
        if not fitting:
            raise _MistakeError(f"no outcome {value}; there are {', '.join(OUTCOMES)}")
        value = fitting[0]
    return Term(value, field, negated) if value else None


def _anywhere(run: FeedRun, word: str) -> bool:
    earlier = EARLIER if run.is_before else ""
    own = (
        run.agent,
        run.preview,
        run.fault,
        run.warning,
        run.state,
        run.id,
        run.asked_by,
        run.identity,
        earlier,
    )
    return any(word in text.lower() for text in own) or any(
        word in f"{step.label} {step.name} {step.notice}".lower() for step in run.steps
    )


class Sieve:
    """A query over trees of runs: shown are the runs that match, and the runs they are nested in."""

    def __init__(self, query: RunQuery = RunQuery()) -> None:
        self._query = query
        self._known: dict[str, tuple[int, bool]] = {}

    @property
    def query(self) -> RunQuery:
        """The query."""
        return self._query

    def lets_through(self, run: FeedRun) -> bool:
        """Return whether the run has a line."""
        return not self._query or self._look(run)

    def _look(self, run: FeedRun) -> bool:
        known = self._known.get(run.id)
        if known is not None and known[0] == run.tree_version:
            return known[1]
        # All of them are looked at: each keeps its own answer.
        below = [self._look(child) for child in run.children()]
        shown = not self._query.excludes(run) and (self._query.matches(run) or any(below))
        self._known[run.id] = run.tree_version, shown
        return shown

    def forget(self, run_ids: set[str]) -> None:
        """Drop the results of runs that are not kept."""
        if len(self._known) > 2 * len(run_ids):
            self._known = {key: value for key, value in self._known.items() if key in run_ids}
