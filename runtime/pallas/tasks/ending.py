"""How a task ends: with an answer, with what went wrong, cancelled, or with its fleet."""

import json
from typing import Any, Final

from pallas.model import Fault, FaultType
from pallas.model.refusals import STOPPED

from .task_work import TaskOutcome, TaskWork

CANCELLED: Final = Fault(FaultType.UPSTREAM, "the task was cancelled", data={"cancelled": True})

type End = dict[str, Any]
"""The fields of a record that its end changes."""


def end_of(work: TaskWork, done: TaskOutcome, *, gone: bool) -> End:
    """How it ends with what came of it. ``gone``: the fleet stops."""
    if done.fault is None:
        end: End = {"status": "completed", "result": done.result, "text": done.text}
    else:
        end = failed(work, done.fault, gone=gone)
        if "result" in end:
            end["result"] = done.result
    return {**end, **({"thread": done.thread} if done.thread else {})}


def failed(work: TaskWork, fault: Fault, *, gone: bool) -> End:
    """How it ends with that Fault. Without a result where the fleet went before there was one."""
    cut = bool(fault.data.get("cancelled"))
    if cut and not work.cancelled and (work.stopped or gone):
        left = {key: fault.data[key] for key in ("partial", "conversation_id") if key in fault.data}
        text = f"{STOPPED}; what it did until then was done: look at its thread, and ask again"
        lost = Fault(FaultType.UPSTREAM, text, data={"stopped": True, **left})
        return broken(lost)
    body = fault.to_body()
    text = json.dumps(body, ensure_ascii=False)
    result = {"content": [{"type": "text", "text": text}], "isError": True}
    return {"status": "cancelled" if cut else "failed", "fault": body, "result": result}


def broken(fault: Fault) -> End:
    """How it ends where what did it broke: without a result, since none was ever given."""
    return {"status": "failed", "fault": fault.to_body()}
