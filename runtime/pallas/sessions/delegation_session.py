"""A whole session for one prompt (SPEC DR-18)."""

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pallas.model import NO_PARAMS, Fault, Params, Principal, RunResult, TraceContext
from pallas.runs.run import Listener

from .session_faults import VALID

if TYPE_CHECKING:
    from .sessions import Sessions

COMPLETE: Final = "task-complete"
FAILED: Final = "task-failed"


@dataclass(frozen=True, slots=True)
class DelegationOutcome:
    """What came of it: ``result``, else ``fault``. ``session_id`` is empty where none could be opened.

    The session is closed by then, as ``task-complete`` or ``task-failed``. ``agent`` is empty where nobody
    could be found.
    """

    session_id: str
    agent: str
    result: RunResult | None = None
    fault: Fault | None = None


async def delegate(
    sessions: "Sessions",
    text: str,
    principal: Principal,
    *,
    agent: str | None = None,
    timeout: float | None = None,
    metadata: Mapping[str, Any] | None = None,
    params: Params = NO_PARAMS,
    listener: Listener | None = None,
    bearer: str | None = None,
    trace: TraceContext | None = None,
    caller: str = "",
) -> DelegationOutcome:
    """As ``Sessions.delegate``."""
    began = monotonic()
    try:
        opened = await sessions.create(agent, principal, metadata=metadata)
    except Fault as fault:
        return DelegationOutcome("", "", fault=fault)
    reason = FAILED
    try:
        left = None if timeout is None else max(0.0, timeout - (monotonic() - began))
        result = await sessions.prompt(
            opened.id,
            text,
            principal,
            timeout=left,
            params=params,
            listener=listener,
            bearer=bearer,
            trace=trace,
            caller=caller,
        )
        reason = COMPLETE
        return DelegationOutcome(opened.id, opened.agent, result)
    except Fault as fault:
        data = {**fault.data, VALID: False}
        told = Fault(fault.type, fault.message, retryable=fault.retryable, code=fault.code, data=data)
        return DelegationOutcome(opened.id, opened.agent, fault=told)
    finally:
        await sessions.close(opened.id, principal, reason)
