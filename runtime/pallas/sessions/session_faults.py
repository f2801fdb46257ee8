"""The Faults of sessions: unknown, another caller's, over, busy, full, or too large a prompt."""

import json
from collections.abc import Mapping
from typing import Any, Final

from pallas.access.identity import OTHER_IDENTITY
from pallas.model import Fault, FaultType
from pallas.model.refusals import REASON
from pallas.safe_text import one_line

VALID: Final = "sessionValid"
"""The key in a Fault's data that says whether the session can still be used."""
SHUTDOWN: Final = "shutdown"
"""The reason for which a session ends in a fleet that stops. One that is stored goes on elsewhere."""


def no_session(session: str, ended: str = "") -> Fault:
    """There is no session of that id, or no longer (UPSTREAM). ``ended`` says how it ended."""
    data = {VALID: False, REASON: "not_found", **({"ended": ended} if ended else {})}
    return Fault(FaultType.UPSTREAM, f"Session not found: {one_line(session, 80)}", data=data)


def is_late() -> Fault:
    """Another prompt of the session took too long (TIMEOUT)."""
    text = "earlier prompts of this session did not finish in time"
    return Fault(FaultType.TIMEOUT, text, data={VALID: True})


def not_theirs(session: str) -> Fault:
    """The session is another caller's (UPSTREAM). The Fault may say so, since its id cannot be guessed."""
    data = {VALID: False, REASON: "not_found"}
    text = f"Session not found: {one_line(session, 80)} was {OTHER_IDENTITY}"
    return Fault(FaultType.UPSTREAM, text, data=data)


def no_thread(thread: str, agent: str) -> Fault:
    """The caller has no such thread to begin a session on (UPSTREAM)."""
    text = (
        f"Thread not found: {one_line(thread, 80)}; it is not a thread of yours with {agent}: name "
        f"its agent as "
        "agentId, or leave threadId out to begin another"
    )
    return Fault(FaultType.UPSTREAM, text, data={REASON: "not_found", "key": "threadId"})


def is_busy(session: str) -> Fault:
    """A prompt is under way in the session (UPSTREAM, DR-11)."""
    text = f"Session {session} is busy — concurrent prompts not allowed"
    return Fault(FaultType.UPSTREAM, text, data={VALID: True})


def has_failed(session: str, why: str) -> Fault:
    """The session failed and was not opened again (UPSTREAM, DR-10)."""
    text = (
        f"Session {session} failed: {one_line(why, 300)}; open it again with sessions_create and metadata "
        f'{{"resume": "{session}"}}, or create another'
    )
    return Fault(FaultType.UPSTREAM, text, data={VALID: False, "resume": session})


def is_replaced(session: str, agent: str) -> Fault:
    """Another agent has the name of the agent that the session was opened with (UPSTREAM, DR-17)."""
    text = (
        f"Session {session} is over: the agent {agent} that it was opened with is gone, and another one of "
        "that name never answers in its place; create another session"
    )
    return Fault(FaultType.UPSTREAM, text, data={VALID: False, "ended": "agent-gone"})


def no_room(limit: int, whose: str) -> Fault:
    """The limit of open sessions is reached (UPSTREAM, DR-14)."""
    data = {"limit": limit, "hint": f"at most {limit} sessions {whose}: close one, or try again later"}
    return Fault(FaultType.UPSTREAM, "Session capacity reached", data=data)


def too_big(what: str, size: int, limit: int, **data: Any) -> Fault:
    """The prompt or the metadata has too many bytes (UPSTREAM, DR-20)."""
    text = f"{what} has {size} bytes; at most {limit} are taken: send less"
    return Fault(FaultType.UPSTREAM, text, data={"limit": limit, "size": size, **data})


def check_prompt(text: str, limit: int) -> None:
    """Raise Fault (UPSTREAM) for a prompt of more than ``limit`` bytes in UTF-8."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        raise too_big("the prompt", size, limit, **{VALID: True})


def check_metadata(metadata: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """The metadata as plain JSON values. Raises Fault: UPSTREAM for too many bytes, PROTOCOL for no JSON."""
    try:
        written = json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(written.encode("utf-8", "surrogatepass"))
    except (TypeError, ValueError, RecursionError):
        raise Fault(FaultType.PROTOCOL, "metadata must be an object of JSON values") from None
    if size > limit:
        raise too_big("the metadata", size, limit)
    copy: dict[str, Any] = json.loads(written)
    return copy
