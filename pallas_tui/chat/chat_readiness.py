"""Whether an agent can be written to now, and the words that say why not (PI-17)."""

from dataclasses import dataclass
from typing import Final

from pallas.model import AgentSnapshot, AgentState
from pallas.safe_text import one_line

from ..instances.attached_snapshots import is_attached_name
from ..mcp_faults import WANTS_CREDENTIAL
from ..state import Tone, again_in, can_answer, reason_of, tone_of
from .conversation import STATUS_LIMIT

PASSING: Final = frozenset({Tone.STARTING, Tone.BACKOFF})
"""Tones whose words change with the time."""

CODE: Final = "This agent is code. If it takes fields, w in the list of agents (1) opens a form for them."
"""How to write to an agent that takes no free text."""

WAYS_OUT: Final = "Alt+p asks as its owner; a in the transcript continues in a thread of your own."
"""What the user can do about a thread of another caller."""


@dataclass(frozen=True, slots=True)
class ChatReadiness:
    """Whether an agent can be written to, and the words that say why not, or what it lacks (PI-17)."""

    tone: Tone
    may_write: bool
    text: str = ""

    @property
    def may_queue(self) -> bool:
        """Whether a message can wait until the agent is ready, which is expected soon."""
        return not self.may_write and self.tone in PASSING


def readiness_of(
    name: str, agent: AgentSnapshot | None, *, with_bearer: bool = False, now: float = 0.0, owner: str = ""
) -> ChatReadiness:
    """Return whether ``name`` can be written to; ``agent`` is None when the fleet does not have it.

    The health check of a remote agent sends no credential. Where that is its only problem, the agent can be
    written to ``with_bearer``. ``now`` (Unix seconds) is for countdowns. ``owner`` is the thread's owner
    where that is another caller: without a bearer token the conversation cannot go on.
    """
    if owner and not with_bearer and agent is not None and can_answer(agent):
        text = f"This thread belongs to {one_line(owner, 60)}: you can read it. {WAYS_OUT}"
        return ChatReadiness(tone_of(agent), False, text)
    if agent is None and is_attached_name(name):
        return ChatReadiness(
            Tone.STOPPED, False, f"{name} is not attached any more. The Instances screen attaches it again."
        )
    if agent is None:
        gone = f"There is no agent {name} in this fleet any more."
        return ChatReadiness(Tone.STOPPED, False, f"{gone} The conversation continues when it is back.")
    tone, reason = tone_of(agent), one_line(reason_of(agent), STATUS_LIMIT)
    if tone is Tone.STARTING:
        waits = agent.state is AgentState.WAITING and agent.depends_on
        doing = f"waits for {', '.join(agent.depends_on)}" if waits else f"is {agent.state.value}"
        return ChatReadiness(tone, False, f"{name} {doing}. What you write is sent when it is ready.")
    if tone is Tone.BACKOFF:
        again = again_in(agent, now) or "again in a moment"
        text = f"{name} failed and is started {again}; what you write is sent when it is ready"
        return ChatReadiness(tone, False, f"{text}. {reason}".rstrip())
    if tone is Tone.CRASH_LOOP:
        text = f"{name} is in a crash loop and is not restarted automatically"
        return ChatReadiness(
            tone, False, f"{text}: start it (agents, s), or fix its files and save. {reason}".rstrip()
        )
    if can_answer(agent):
        return ChatReadiness(tone, True, reason)
    if tone is Tone.ERROR and with_bearer and is_attached_name(name) and WANTS_CREDENTIAL in reason:
        return ChatReadiness(
            Tone.DEGRADED, True, f"{name} needs a credential: its health is unknown without one."
        )
    if tone is Tone.ERROR:
        return ChatReadiness(tone, False, f"{name} cannot answer: {reason or 'it is in error'}")
    return ChatReadiness(tone, False, f"{name} is {agent.state.value}.")


def why_no_images(name: str, agent: AgentSnapshot | None) -> str:
    """Say why pictures cannot go to this agent; empty when they can (PR-17)."""
    if agent is None or agent.vision:
        return ""
    lacks = "has no vision" if agent.kind == "llm" else "takes no pictures"
    return f"{name} {lacks}: remove the image."


def welcome(name: str, agent: AgentSnapshot | None) -> str:
    """Return the text that an empty conversation shows."""
    about = agent.description or agent.title if agent is not None else ""
    code = CODE if agent is not None and agent.kind == "handler" else ""
    return "\n\n".join(part for part in (f"A new conversation with {name}.", about, code) if part)
