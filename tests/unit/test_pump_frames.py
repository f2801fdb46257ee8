"""Frames: what ends with an answer, what never mixes, and that nothing is left of a run."""

import asyncio
import contextlib
import gc
import logging
import weakref
from typing import Any
from uuid import UUID

import pytest
from support.pumped import Answer, Ask, Handler, World, echo, forever, respond, to, until

from pallas.contract import HandlerMetadata, HandlerResponse
from pallas.messaging import frames, handler_work
from pallas.messaging.frames import HandlerFrame
from pallas.model import MessagePassed, ToolEvent


async def test_an_answer_ends_all_that_was_begun_below() -> None:
    # HC-18, X7: two peers below the one that answers, one at work, one with something kept
    below: list[HandlerMetadata] = []

    async def keeps(payload: Any, metadata: HandlerMetadata) -> HandlerResponse | None:
        scratch = world["keeps"].scratch[metadata.thread_id]
        scratch["seen"] = scratch.get("seen", 0) + 1
        below.append(metadata)
        return respond(str(scratch["seen"]))

    async def works(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Answer):
            return respond(payload.text)
        return b"<keeps.ask><text/></keeps.ask><slow.ask><text/></slow.ask>"  # type: ignore[return-value]

    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Answer):
            answers.append(payload.text)
            if len(answers) == 2:
                return respond(" ".join(answers))
        return to("works")

    answers: list[str] = []
    world = World(
        Handler("calls", calls, peers=["works"]),
        Handler("works", works, peers=["keeps", "slow"]),
        Handler("keeps", keeps),
        Handler("slow", forever),
    )
    with pytest.warns(DeprecationWarning, match="works returns bytes"):
        assert await world.send("calls", Ask()) == Answer("1 1")  # the same peer starts fresh
    assert world["slow"].running == 0
    assert len({each.thread_id for each in below}) == 2
    assert world["keeps"].scratch == world["slow"].scratch == world["works"].scratch == {}
    assert sorted(world["keeps"].over) == sorted(each.thread_id for each in below)
    ended = [each for each in world.events if isinstance(each, ToolEvent) and each.server == "slow"]
    assert [each.phase for each in ended] == ["started", "failed", "started", "failed"]
    assert [each.nested for each in ended] == [True] * 4
    assert world.clean()


async def test_what_comes_too_late_is_dropped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    # HC-18, X7: it was cancelled, and answers all the same
    async def stubborn(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return respond("too late")

    async def works(payload: Any, metadata: HandlerMetadata) -> Any:
        if metadata.is_self_call:
            await until(lambda: world["stubborn"].running)
            return respond("early")
        return b"<stubborn.ask><text/></stubborn.ask><works.ask><text/></works.ask>"

    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Answer):
            await until(lambda: not world["stubborn"].running)
            return respond(payload.text)
        return to("works")

    world = World(
        Handler("calls", calls, peers=["works"]),
        Handler("works", works, peers=["stubborn"]),
        Handler("stubborn", stubborn),
    )
    with caplog.at_level(logging.INFO, "pallas.messaging"), pytest.warns(DeprecationWarning):
        assert await world.send("calls", Ask()) == Answer("early")
    assert [type(each) for each in world["works"].got] == [Ask, Ask]
    [dropped] = world.messages(outcome="dropped")
    assert (dropped.sender, dropped.payload) == ("stubborn", "Answer")
    [asked] = world.messages(to="stubborn", outcome="delivered")
    assert (dropped.frame, dropped.parent) == (asked.frame, asked.parent)  # where it was, not at the root
    assert any("stubborn" in line and "is over" in line for line in caplog.messages)
    assert world.clean()


async def test_messages_of_one_frame_come_one_by_one_in_order() -> None:
    async def fans_out(payload: Any, metadata: HandlerMetadata) -> Any:
        if isinstance(payload, Ask):
            return b"".join(f"<echo.ask><text>{n}</text></echo.ask>".encode() for n in range(4))
        got.append(payload.text)
        await asyncio.sleep(0)
        return respond(" ".join(sorted(got))) if len(got) == 4 else None

    async def together(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        await until(lambda: world["echo"].most == 4)
        return respond(payload.text)

    got: list[str] = []
    world = World(Handler("fans", fans_out, peers=["echo"]), Handler("echo", together))
    with pytest.warns(DeprecationWarning):
        assert await world.send("fans", Ask()) == Answer("0 1 2 3")
    assert world["fans"].most == 1


async def test_twenty_conversations_with_one_agent_never_mix() -> None:
    # HC-19, X6
    async def agent(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        scratch = world["ag.ent"].scratch[metadata.thread_id]
        if isinstance(payload, Answer):
            scratch["heard"].append(payload.text)
        else:
            scratch.setdefault("said", payload.text)
            scratch.setdefault("heard", [])
        await asyncio.sleep(0)
        if len(scratch["heard"]) == 3:
            return respond(f"{scratch['said']}: {' '.join(scratch['heard'])}")
        return to("echo", f"{scratch['said']}.{len(scratch['heard'])}")

    async def console(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        seen.setdefault(metadata.thread_id, []).append(payload.text)
        return respond(payload.text) if isinstance(payload, Answer) else to("ag.ent", payload.text)

    seen: dict[str, list[str]] = {}
    world = World(
        Handler("console", console, peers=["ag.ent"]),
        Handler("ag.ent", agent, peers=["echo"]),
        Handler("echo", echo),
    )
    answers = await asyncio.gather(*(world.send("console", Ask(str(n))) for n in range(20)))
    assert [each.text for each in answers] == [f"{n}: {n}.0 {n}.1 {n}.2" for n in range(20)]
    assert len({each.thread_id for each in world["ag.ent"].seen}) == 20
    assert len(seen) == 20
    assert all(len(each) == 2 and each[1].startswith(f"{each[0]}: ") for each in seen.values())
    assert world.clean()


async def test_every_frame_is_freed_with_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[weakref.ref[HandlerFrame]] = []
    make = HandlerFrame.__init__

    def noted(self: HandlerFrame, *args: Any, **more: Any) -> None:
        make(self, *args, **more)
        kept.append(weakref.ref(self))

    monkeypatch.setattr(frames.HandlerFrame, "__init__", noted)

    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Ask) and payload.text == "fail":
            raise RuntimeError
        return to("echo") if isinstance(payload, Ask) else respond()

    world = World(Handler("calls", calls, peers=["echo"]), Handler("echo", echo), Handler("slow", forever))
    await asyncio.gather(*(world.send("calls", Ask()) for _ in range(5)))
    await asyncio.gather(*(world.send("calls", Ask("fail")) for _ in range(5)), return_exceptions=True)
    task = asyncio.create_task(world.send("slow", Ask()))
    await until(lambda: world["slow"].running)
    assert world.pump.open_frames == 1
    task.cancel()
    await asyncio.wait({task})
    del task
    gc.collect()
    assert len(kept) == 16
    assert [each() for each in kept if each() is not None] == []
    assert world.clean()


async def test_frames_and_messages_are_told_as_one_tree() -> None:
    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("middle") if isinstance(payload, Ask) else respond()

    async def middle(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("echo") if isinstance(payload, Ask) else respond()

    world = World(
        Handler("calls", calls, peers=["middle"]),
        Handler("middle", middle, peers=["echo"]),
        Handler("echo", echo),
    )
    await world.send("calls", Ask())
    messages = [each for each in world.events if isinstance(each, MessagePassed)]
    assert [each.number for each in messages] == [1, 2, 3, 4, 5, 6]
    assert [(each.sender, each.to, each.route) for each in messages] == [
        ("system.caller", "calls", "call"), ("calls", "middle", "call"), ("middle", "echo", "call"),
        ("echo", "middle", "respond"), ("middle", "calls", "respond"), ("calls", "system.caller", "result"),
    ]  # fmt: skip
    first, second, third = (each.frame for each in messages[:3])
    assert [each.parent for each in messages] == [world.pump.root, first, second, first, world.pump.root, ""]
    assert [each.left for each in messages] == ["", "", "", third, second, first]
    assert messages[5].frame == world.pump.root
    assert str(UUID(world.pump.root)) == world.pump.root
    calls_told = [each for each in world.events if isinstance(each, ToolEvent)]
    assert [(each.server, each.tool, each.phase, each.nested) for each in calls_told] == [
        ("middle", "Ask", "started", False), ("echo", "Ask", "started", True),
        ("echo", "Ask", "completed", True), ("middle", "Ask", "completed", False),
    ]  # fmt: skip
    assert {each.call_id for each in calls_told} == {second, third}
    spans = {each.call_id: each.span_id for each in calls_told}
    assert messages[1].span_id == spans[second]
    assert messages[0].span_id == f"{1:016x}"  # that of the run itself


async def test_a_cancelled_run_does_not_wait_for_who_will_not_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # UN-2: the run is over, its frames and places are free; what the handler says later nobody hears
    monkeypatch.setattr(handler_work, "GRACE", 0.02)
    let_go = asyncio.Event()

    async def stubborn(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await let_go.wait()
        return respond("too late")

    world = World(Handler("stubborn", stubborn))
    run = asyncio.create_task(world.send("stubborn", Ask()))
    await until(lambda: world["stubborn"].running)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert world.clean()
    before = len(world.events)
    with caplog.at_level(logging.INFO, "pallas.messaging"):
        let_go.set()
        await until(lambda: any("dropped Answer of stubborn" in line for line in caplog.messages))
    assert len(world.events) == before
