"""A message that is sent again: what is sent, which run came of it, and the two replies."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pallas.model import AgentDetail, AgentSnapshot, Envelope, Fault, ToolOutcome
from pallas.model.safe_text import one_line

from ..runs.feed_run import FeedRun
from .message_book import RunEnvelopes
from .message_tree import answer_to
from .xml_text import payload_of

AGAIN: Final = frozenset({"call", "self", "boot"})
"""Routes of messages that mean something to their receiver without what was before."""
_TEXT: Final = re.compile(r"<text>(.*)</text>", re.DOTALL)
_PREVIEW: Final = 40


def refusal_of(letter: Envelope, agents: Iterable[AgentSnapshot]) -> str:
    """Why a message cannot be sent again, empty where it can."""
    if letter.route not in AGAIN:
        return f"A {letter.route} answers something; replay the call that it answers."
    if all(agent.name != letter.to for agent in agents):
        return f"{letter.to or 'nobody'} is no agent of this fleet now."
    if letter.cut:
        return "The message was longer than what is kept; write it again: s."
    return ""


def message_of(letter: Envelope, detail: AgentDetail) -> str:
    """What is sent: the payload's XML, or its text to an agent that takes that. Empty where there is none."""
    payload = payload_of(letter)
    return payload if detail.payload is not None else text_of(payload)


def text_of(payload: str) -> str:
    """The words of a ``Text``; anything else as it is."""
    from html import unescape

    found = _TEXT.search(payload) if payload.startswith("<Text") else None
    return unescape(found.group(1)) if found is not None else payload


def old_reply(messages: RunEnvelopes | None, letter: Envelope) -> Envelope | None:
    """What it was answered then, None where nothing was or it is not kept."""
    return answer_to(messages, letter) if messages is not None else None


def run_of(runs: Iterable[FeedRun], before: frozenset[str], agent: str, message: str) -> FeedRun | None:
    """The run that came of it: a new one of that agent that no one else asked for."""
    new = [run for run in runs if run.id not in before and run.agent == agent and run.parent is None]
    said = one_line(message, _PREVIEW)[: _PREVIEW // 2]
    return next((run for run in new if run.preview.startswith(said)), new[0] if new else None)


def run_id_of(outcome: ToolOutcome) -> str:
    """The run that the answer says it comes of, empty where it says nothing of that."""
    try:
        found = json.loads(outcome.content)["_meta"]["local.pallas/runId"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return ""
    return found if isinstance(found, str) else ""


@dataclass(frozen=True, slots=True)
class Replies:
    """The two replies as texts; ``ok``: the new one is one. ``none`` says why there is no old one."""

    old: str
    new: str
    ok: bool
    none: str = ""

    @property
    def same(self) -> bool:
        """Whether they say the same."""
        from .reply_difference import readable

        return self.ok and not self.none and readable(self.old) == readable(self.new)


def replies(answer: Envelope | None, outcome: ToolOutcome) -> Replies:
    """Both, each in the form in which the other is."""
    new = "\n".join(outcome.texts)
    if answer is None:
        return Replies("", new, outcome.ok, "It had no answer then, or none that is kept.")
    old = payload_of(answer)
    if not new.lstrip().startswith("<"):
        old = text_of(old)
    none = "" if old else "Its answer then was longer than what is kept."
    return Replies(plain(old), plain(new), outcome.ok, none)


def plain(xml: str) -> str:
    """XML without the mark of being in no namespace, which an envelope has to have and a reply has not."""
    return xml.replace(' xmlns=""', "").replace(" xmlns=''", "")


def failed(error: Exception, seconds: float) -> ToolOutcome:
    """What came of a message that could not be sent."""
    why = error.message if isinstance(error, Fault) else f"the call failed: {type(error).__name__}"
    return ToolOutcome(ok=False, content="", seconds=seconds, texts=(why,))
