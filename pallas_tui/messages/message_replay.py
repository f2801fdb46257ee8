"""Replay of a message: the text to send, the run that it starts, and the two replies."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pallas.model import AgentDetail, AgentSnapshot, Envelope, Fault, ToolOutcome
from pallas.safe_text import one_line

from ..runs.feed_run import FeedRun
from .message_book import RunEnvelopes
from .message_tree import answer_to
from .xml_text import payload_of

AGAIN: Final = frozenset({"call", "self", "boot"})
"""Routes of messages that make sense to their receiver without history."""
_TEXT: Final = re.compile(r"<text>(.*)</text>", re.DOTALL)
_PREVIEW: Final = 40


def refusal_of(letter: Envelope, agents: Iterable[AgentSnapshot]) -> str:
    """Say why a message cannot be sent again; empty where it can."""
    if letter.route not in AGAIN:
        return f"A {letter.route} answers something; replay the call that it answers."
    if all(agent.name != letter.to for agent in agents):
        return f"{letter.to or 'no one'} is not an agent of this fleet now."
    if letter.cut:
        return "The message was longer than what is kept; write it again: s."
    return ""


def message_of(letter: Envelope, detail: AgentDetail) -> str:
    """Return the text to send: the payload's XML, or its text to an agent that takes text.

    Empty where there is none.
    """
    payload = payload_of(letter)
    return payload if detail.payload is not None else text_of(payload)


def text_of(payload: str) -> str:
    """Return the text of a ``Text``; any other payload unchanged."""
    from html import unescape

    found = _TEXT.search(payload) if payload.startswith("<Text") else None
    return unescape(found.group(1)) if found is not None else payload


def old_reply(messages: RunEnvelopes | None, letter: Envelope) -> Envelope | None:
    """Return the original reply; None where there was none or it is not kept."""
    return answer_to(messages, letter) if messages is not None else None


def run_of(runs: Iterable[FeedRun], before: frozenset[str], agent: str, message: str) -> FeedRun | None:
    """Return the run that the message started: a new run of that agent without another caller."""
    new = [run for run in runs if run.id not in before and run.agent == agent and run.parent is None]
    preview = one_line(message, _PREVIEW)[: _PREVIEW // 2]
    return next((run for run in new if run.preview.startswith(preview)), new[0] if new else None)


def run_id_of(outcome: ToolOutcome) -> str:
    """Return the run id that the answer names; empty where it names none."""
    try:
        found = json.loads(outcome.content)["_meta"]["local.pallas/runId"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return ""
    return found if isinstance(found, str) else ""


@dataclass(frozen=True, slots=True)
class Replies:
    """The two replies as texts; ``ok``: the new one is a reply. ``none`` says why there is no old one."""

    old: str
    new: str
    ok: bool
    none: str = ""

    @property
    def same(self) -> bool:
        """Whether both are equal."""
        from .reply_difference import readable

        return self.ok and not self.none and readable(self.old) == readable(self.new)


def replies(answer: Envelope | None, outcome: ToolOutcome) -> Replies:
    """Return both replies in the same form."""
    new = "\n".join(outcome.texts)
    if answer is None:
        return Replies("", new, outcome.ok, "It had no answer then, or the answer is no longer kept.")
    old = payload_of(answer)
    if not new.lstrip().startswith("<"):
        old = text_of(old)
    none = "" if old else "Its answer then was longer than what is kept."
    return Replies(plain(old), plain(new), outcome.ok, none)


def plain(xml: str) -> str:
    """Return XML without the empty namespace, which an envelope must have and a reply has not."""
    return xml.replace(' xmlns=""', "").replace(" xmlns=''", "")


def failed(error: Exception, seconds: float) -> ToolOutcome:
    """Return the outcome of a message that could not be sent."""
    why = error.message if isinstance(error, Fault) else f"the call failed: {type(error).__name__}"
    return ToolOutcome(ok=False, content="", seconds=seconds, texts=(why,))
