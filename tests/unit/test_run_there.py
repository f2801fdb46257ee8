"""How long a run at another Pallas is asked for again."""

from typing import Any

import pytest

from pallas.executors.remote import run_there
from pallas.executors.remote.call_method import CallMethod
from pallas.executors.remote.run_there import AGAIN_SECONDS, RunThere
from pallas.model import Fault, FaultType

WAY = CallMethod("send_message", "message", "an agent of another Pallas", keyed=True)
BROKEN = Fault(FaultType.TRANSPORT, "the connection broke off")


async def test_a_run_is_asked_for_again_for_a_while_after_each_connection_that_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1_000.0]
    monkeypatch.setattr(run_there, "monotonic", lambda: now[0])
    monkeypatch.setattr(run_there, "_PAUSE", 0.0)
    journal: Any = object()
    there = RunThere("key", journal)
    assert not await there.may_be_asked_again(BROKEN)  # it was never asked for
    assert there.asked(WAY) == {"local.pallas/idempotency": "key"}
    now[0] += 10 * AGAIN_SECONDS
    assert await there.may_be_asked_again(BROKEN)
    assert there.asked(WAY) == {"local.pallas/idempotency": "key", "local.pallas/join": True}
    assert not await there.may_be_asked_again(Fault(FaultType.AUTH, "no"))
    now[0] += 2 * AGAIN_SECONDS  # this one held
    assert await there.may_be_asked_again(BROKEN)
    for _ in range(3):  # nothing answers
        assert await there.may_be_asked_again(BROKEN)
        now[0] += AGAIN_SECONDS / 3
    assert not await there.may_be_asked_again(BROKEN)


async def test_a_side_without_keys_is_asked_once() -> None:
    journal: Any = object()
    there = RunThere("key", journal)
    assert there.asked(CallMethod("ask", "question", "a tool")) == {}
    assert not await there.may_be_asked_again(BROKEN)
