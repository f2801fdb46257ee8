"""Trace context as callers send it: taken when it is well formed, ignored when it is not."""

import asyncio

import pytest

from pallas.model import TraceContext
from pallas.telemetry.trace_context import (
    MAX_BAGGAGE,
    MAX_STATE,
    RunTrace,
    begin_call,
    child_of,
    current_run,
    incoming,
    outgoing,
    parse,
    running,
)
from pallas.telemetry.wire_record import WireRecord

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize("value", [GOOD, f" {GOOD} ", f"cc-{TRACE}-{SPAN}-01-what-comes-later"])
def test_a_well_formed_one_is_read(value: str) -> None:
    assert parse(value) == TraceContext(TRACE, SPAN, "01")


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        "",
        GOOD.upper(),
        GOOD[:-1],
        GOOD + "-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-zz",
        f"cc-{TRACE}-{SPAN}-01-" + "x" * 500,
        GOOD + "\n\x1b[2J",
    ],
)
def test_anything_else_is_ignored(value: object) -> None:
    assert parse(value) is None


def test_metadata_comes_before_headers_unless_it_is_malformed() -> None:
    other = f"00-{'ab' * 16}-{'cd' * 8}-00"
    assert incoming({"traceparent": other}, {"traceparent": GOOD}) == TraceContext("ab" * 16, "cd" * 8, "00")
    assert incoming({"traceparent": "no"}, {"traceparent": GOOD}) == TraceContext(TRACE, SPAN)
    assert incoming({"progressToken": 1}, {"traceparent": GOOD}) == TraceContext(TRACE, SPAN)
    assert incoming(None, None) is None


def test_state_and_baggage_are_bounded_and_left_out_when_they_are_malformed() -> None:
    assert parse(GOOD, "a=1", "b=2") == TraceContext(TRACE, SPAN, "01", "a=1", "b=2")
    long = parse(GOOD, "a" * (MAX_STATE + 1), "b" * (MAX_BAGGAGE + 1))
    odd = parse(GOOD, "a=\x1b[2J", ["b=2"])
    assert long == odd == TraceContext(TRACE, SPAN)


def test_a_child_stays_in_the_trace_and_without_a_parent_begins_one() -> None:
    parent = TraceContext(TRACE, SPAN, "00", "a=1", "b=2")
    child = child_of(parent)
    assert (child.trace_id, child.flags, child.state, child.baggage) == (TRACE, "00", "a=1", "b=2")
    assert child.span_id != SPAN
    assert child_of(None).trace_id != child_of(None).trace_id


def test_a_run_that_is_over_is_nobodys_run() -> None:
    run = RunTrace("r", "one", TraceContext(TRACE, SPAN))
    with running(run):
        assert current_run() is run
        span = begin_call()
        assert outgoing() == {"traceparent": f"00-{TRACE}-{span}-01"}
        run.live = False  # as it is for a task that outlives it
        assert current_run() is None
        assert begin_call() == ""
        assert outgoing() == {}
    assert current_run() is None


async def test_what_was_begun_for_a_run_and_outlives_it_is_nobodys() -> None:
    wire = WireRecord().open("r")
    over = asyncio.Event()

    async def connection() -> RunTrace | None:
        before = current_run()
        assert before is not None
        await over.wait()
        return current_run()

    with running(RunTrace("r", "one", TraceContext(TRACE, SPAN), wire)):
        task = asyncio.create_task(connection())
        await asyncio.sleep(0)
        assert wire.live
    over.set()
    assert await task is None
    assert not wire.live
