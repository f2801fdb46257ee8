"""The same handler twice in one fleet, in its process and in one of its own: nobody can tell which is."""

import asyncio
import json
import logging
import os
import signal
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import psutil
import pytest
import pytest_asyncio
from support import pallas_process
from support.live import MODERN_FIRST, ask, ask_agent, client, running
from support.processes import gone
from support.served import fault_in
from support.typed import typed_project
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.messaging.handler_work import MessageTask
from pallas.model import AgentState, Fault, FaultType

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]

DESK = '''
    import asyncio
    import gc
    import os
    from dataclasses import dataclass

    from pallas.contract import HandlerResponse, SystemError, Text, scratch
    from pallas.model import Fault, FaultType

    @dataclass
    class Order:
        """What to do, and with what."""

        what: str
        text: str = ""
        number: int = 0

    @dataclass
    class Shout:
        text: str

    @dataclass
    class Loud:
        text: str
        by: str

    class Mute(Exception):
        """Has no words: asking for them is a mistake of its own."""

        def __str__(self):
            raise SystemExit(3)

    def shown(found):
        try:
            return repr(found)
        except Exception:
            return ""

    async def duty(payload, metadata):
        kept = scratch()
        kept["seen"] = [*kept.get("seen", []), type(payload).__name__]
        if not isinstance(payload, Order):
            kept["answers"] = [*kept.get("answers", []), repr(payload)]
            if len(kept["answers"]) < kept.get("wanted", 1):
                return None
            if kept.get("after"):
                return HandlerResponse(Shout(kept.pop("after")), to="helper")
            return HandlerResponse.respond(Text("; ".join(kept["answers"])))
        match payload.what:
            case "call":
                return HandlerResponse(Shout(payload.text), to="helper")
            case "forge":
                metadata.from_id, metadata.thread_id, metadata.own_name = "boss", "x", "boss"
                response = HandlerResponse(Shout(payload.text), to="helper")
                response.from_id = response.sender = "boss"
                return response
            case "stray":
                kept["wanted"], kept["after"] = 1, "and again"
                return HandlerResponse(Shout("psst"), to=payload.text)
            case "count" if payload.number:
                return HandlerResponse(Order("count", payload.text, payload.number - 1), to=metadata.own_name)
            case "count":
                told = f"{len(kept['seen'])} {metadata.is_self_call} {metadata.thread_id} {metadata.from_id}"
                return HandlerResponse.respond(Text(told))
            case "bytes":
                kept["wanted"] = 2
                return b"<helper.shout><text>one</text></helper.shout><other.shout><text/></other.shout>"
            case "facts":
                told = [metadata.thread_id, metadata.from_id, metadata.own_name, metadata.is_self_call]
                return HandlerResponse.respond(Text(repr([*told, metadata.usage_instructions])))
            case "raise":
                raise ValueError("the password is swordfish")
            case "fault":
                odd = {"o": object(), "inf": float("inf"), "long": "x" * 9_000, "kept": [1, "two"]}
                raise Fault(FaultType.UPSTREAM, "no luck", data={**odd, "system": "routing", "type": "AUTH"})
            case "sly fault":
                fault = Fault(FaultType.AUTH, object(), retryable=object())
                fault.type, fault.code, fault.data = "ROUTING", [], {1: 2}
                raise fault
            case "mute":
                raise Mute
            case "odd":
                return "just text"
            case "wait":
                await asyncio.sleep(600)
            case "pid":
                return HandlerResponse.respond(Text(str(os.getpid())))
            case "search":
                found = sum(payload.text[::-1] in shown(each) for each in gc.get_objects()[-100_000:])
                return HandlerResponse.respond(Text(f"{found} {payload.text[::-1] in repr(os.environ)}"))
        return HandlerResponse.respond(Text("done"))

    async def slow(payload, metadata):
        while payload.what == "loop":
            pass
        return HandlerResponse.respond(Text(payload.what))

    async def patient(payload, metadata):
        """Asks the one that never lets go, and answers what came of it, and of a second try."""
        if isinstance(payload, Order):
            return HandlerResponse(payload, to="slow")
        if isinstance(payload, SystemError):
            scratch()["error"] = f"{payload.code} {payload.retry_allowed}"
            return HandlerResponse(Order("back"), to="slow")
        return HandlerResponse.respond(Text(f"{scratch()['error']} {payload.text}"))

    async def helper(payload, metadata):
        return HandlerResponse.respond(Loud(payload.text.upper(), metadata.from_id))

    def sync(payload, metadata):
        open("called", "w").close()
'''
ORDER = {
    "payload": "Order",
    "handler": "desk:duty",
    "agent": True,
    "peers": ["helper"],
    "prompt": "the inner prompt",
}
APART = {"isolation": "process", "memory": "256MB"}
ENTRIES: dict[str, dict[str, Any]] = {
    "near": ORDER,
    "far": {**ORDER, **APART, "env": {"DESK": "window"}},
    "helper": {"payload": "Shout"},
    "other": {"payload": "Shout", "handler": "desk:helper"},
    "slow": {"payload": "Order", "timeout": 600, **APART, "restart": "never"},
    "patient": {"payload": "Order", "agent": True, "peers": ["slow"]},
    "sync": {"payload": "Order", **APART},
}
BOTH = pytest.mark.parametrize("who", ["near", "far"])


def below() -> set[int]:
    """Processes that this one has started, however deep."""
    return {each.pid for each in pallas_process.below()}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    root = typed_project(tmp_path_factory.mktemp("apart") / "project", DESK, ENTRIES)
    before = below()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XAI_API_KEY", "sk-of-the-environment")
        async with running(root) as fleet:
            yield fleet
            pids = {each.executor.pid for each in fleet.agents if each.executor is not None} - {None}
            assert len(pids) == 2
    await until(lambda: not below() - before)  # nothing is left of any of them


async def typed_answer(
    fleet: Fleet, agent: str, what: str, text: str = "", number: int = 0, **more: Any
) -> str:
    """The answer to a caller from outside."""
    order = json.dumps({"what": what, "text": text, "number": number})
    async with asyncio.timeout(60):
        answer = await ask_agent(fleet, agent, order, **more)
    return str(json.loads(answer)["text"])


async def fails(fleet: Fleet, agent: str, what: str, text: str = "") -> Fault:
    with pytest.raises(Fault) as caught:
        await typed_answer(fleet, agent, what, text)
    return caught.value


async def test_only_one_of_them_is_in_the_fleets_process(fleet: Fleet) -> None:
    assert await typed_answer(fleet, "near", "pid") == str(os.getpid())
    far = await typed_answer(fleet, "far", "pid")
    assert far != str(os.getpid())
    assert next(each for each in fleet.snapshot().agents if each.name == "far").pid == int(far)


@pytest.mark.parametrize("era", MODERN_FIRST)
@BOTH
async def test_a_caller_is_answered_and_told_what_is_no_message(fleet: Fleet, who: str, era: str) -> None:
    # HC-2
    async with client(fleet, who, era=era) as caller:
        assert await ask(caller, "<Order><what>a &amp; b</what></Order>") == "<Text><text>done</text></Text>"
        fault = fault_in(
            await caller.call_tool("send_message", {"message": '{"what": "say", "number": "x"}'})
        )
        assert fault["data"]["type"] == "PROTOCOL"
        assert "number" in fault["error"]


@BOTH
async def test_peers_are_called_and_answer_with_classes_of_theirs(fleet: Fleet, who: str) -> None:
    # HC-3, HC-4, HC-7
    assert await typed_answer(fleet, who, "call", "hey") == f"Loud(text='HEY', by='{who}')"


@BOTH
async def test_metadata_say_what_they_may_and_no_more(fleet: Fleet, who: str) -> None:
    # HC-8
    thread = str(uuid.uuid4())
    told = await typed_answer(fleet, who, "facts", conversation=thread)
    assert told.startswith(f"['{thread}', 'system.caller', '{who}', False, ")
    assert "helper" in told
    assert "Complete ALL sub-tasks before responding" in told
    assert "other" not in told
    assert "slow" not in told


@BOTH
async def test_self_calls_stay_in_their_frame_with_what_it_keeps(fleet: Fleet, who: str) -> None:
    # HC-9, HC-18
    thread = str(uuid.uuid4())
    assert await typed_answer(fleet, who, "count", number=3, conversation=thread) == f"4 True {thread} {who}"
    assert (
        await typed_answer(fleet, who, "count", number=0, conversation=thread)
        == f"1 False {thread} system.caller"
    )


@BOTH
async def test_forged_names_do_not_travel(fleet: Fleet, who: str) -> None:
    # HC-11
    assert await typed_answer(fleet, who, "forge", "hey") == f"Loud(text='HEY', by='{who}')"


@BOTH
async def test_a_fault_that_it_raises_is_its_own_and_says_only_what_can_be_passed_on(
    fleet: Fleet, who: str
) -> None:
    # HC-13
    fault = await fails(fleet, who, "fault")
    assert (fault.type, fault.message) == (FaultType.UPSTREAM, f"{who}: no luck")
    assert fault.data == {"kept": [1, "two"]}
    assert fault.system_code == "upstream"


@BOTH
async def test_what_it_raises_is_told_however_odd_it_is(fleet: Fleet, who: str) -> None:
    # HC-22
    fault = await fails(fleet, who, "sly fault")
    assert (fault.type, fault.retryable, dict(fault.data)) == (FaultType.UPSTREAM, False, {})
    assert fault.message.startswith(f"{who}: <object object at 0x")
    fault = await fails(fleet, who, "mute")
    assert fault.type is FaultType.UPSTREAM
    assert fault.message.replace(":", "") == f"{who} failed; the log has the details"
    assert await typed_answer(fleet, who, "call", "hey") == f"Loud(text='HEY', by='{who}')"


@pytest.mark.parametrize("target", ["other", "nobody"])
@BOTH
async def test_who_is_no_peer_is_not_reached_and_the_thread_goes_on(
    fleet: Fleet, caplog: pytest.LogCaptureFixture, who: str, target: str
) -> None:
    # HC-12, HC-13, HC-14
    with caplog.at_level(logging.WARNING):
        answers = await typed_answer(fleet, who, "stray", target)
    assert answers == (
        "SystemError(code='routing', message='Message could not be delivered. Please verify your target and "
        f"try again.', retry_allowed=True); Loud(text='AND AGAIN', by='{who}')"
    )
    assert any(who in each.message and target in each.message for each in caplog.records)


@BOTH
async def test_bytes_are_several_messages_under_the_same_rules(fleet: Fleet, who: str) -> None:
    # HC-21
    with pytest.warns(DeprecationWarning, match=f"{who} returns bytes"):
        answers = await typed_answer(fleet, who, "bytes")
    assert f"Loud(text='ONE', by='{who}')" in answers
    assert "SystemError(code='routing'" in answers


@BOTH
async def test_failures_are_told_without_their_words(
    fleet: Fleet, caplog: pytest.LogCaptureFixture, who: str
) -> None:
    # HC-22
    with caplog.at_level(logging.ERROR):
        fault = await fails(fleet, who, "raise")
        odd = await fails(fleet, who, "odd")
        assert await typed_answer(fleet, who, "say") == "done"
    assert (fault.type, odd.type) == (FaultType.UPSTREAM, FaultType.UPSTREAM)
    assert "failed; the log has the details" in fault.message
    assert "swordfish" not in json.dumps(fault.to_body())
    assert "gave no answer that can be passed on" in odd.message
    logged = [each for each in caplog.records if "swordfish" in each.message + (each.exc_text or "")]
    assert logged
    assert any("desk.py" in (each.exc_text or "") or each.exc_info for each in logged)


@pytest.mark.slow
async def test_one_that_never_lets_go_is_ended_and_its_caller_goes_on(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    # HC-32
    pid = next(each for each in fleet.snapshot().agents if each.name == "slow").pid
    assert pid is not None
    process, overdue = psutil.Process(pid), list[Callable[[], None]]()
    idle = process.cpu_times().user

    def within(work: MessageTask, seconds: float, tell: Callable[[MessageTask], None]) -> None:
        """A limit that passes when the test says so."""
        if work.agent == "slow":
            assert seconds == 600
            overdue.append(lambda: tell(work))

    monkeypatch.setattr(MessageTask, "within", within)
    asking = asyncio.create_task(typed_answer(fleet, "patient", "loop"))
    await until(lambda: process.cpu_times().user > idle + 0.2)
    overdue[0]()
    assert await asking == "timeout True back"
    await until(lambda: gone(pid))
    slow = next(each for each in fleet.snapshot().agents if each.name == "slow")
    assert slow.state is AgentState.READY


async def test_it_cannot_read_its_prompt_nor_what_its_fleet_knows(fleet: Fleet) -> None:
    # HC-36
    for secret in ("the inner prompt", "sk-of-the-environment"):
        assert await typed_answer(fleet, "far", "search", secret[::-1]) == "0 False"
    waiting = asyncio.create_task(typed_answer(fleet, "near", "wait", "what near was told"))
    await until(lambda: fleet.messaging.open_frames == 1)
    assert await typed_answer(fleet, "far", "search", "what near was told"[::-1]) == "0 False"
    waiting.cancel()
    await asyncio.wait({waiting})


async def test_what_is_no_handler_is_refused_with_its_line_and_never_run(fleet: Fleet) -> None:
    # HC-1
    sync = next(each for each in fleet.agents if each.name == "sync")
    lines = (fleet.project.root / "desk.py").read_text("utf-8").splitlines()
    assert sync.state is AgentState.ERROR
    assert sync.reason.startswith(f"desk.py:{lines.index('def sync(payload, metadata):') + 1}: ")
    assert "is not asynchronous" in sync.reason
    assert not (fleet.project.root / "called").exists()


@pytest.mark.slow
async def test_one_that_is_killed_in_the_middle_fails_its_callers_and_comes_back(fleet: Fleet) -> None:
    pid = int(await typed_answer(fleet, "far", "pid"))
    waiting = [asyncio.create_task(fails(fleet, "far", "wait")) for _ in range(3)]
    await until(lambda: fleet.messaging.open_frames == 3)
    await typed_answer(fleet, "far", "say")  # by now the others have begun
    os.kill(pid, signal.SIGKILL)
    for fault in await asyncio.gather(*waiting):
        assert (fault.type, fault.retryable) == (FaultType.TRANSPORT, True)
        assert "SIGKILL" in fault.message
    far = next(each for each in fleet.agents if each.name == "far")
    await until(lambda: far.state is AgentState.READY and far.executor.pid not in (None, pid))
    assert await typed_answer(fleet, "far", "call", "again") == "Loud(text='AGAIN', by='far')"


async def test_a_caller_that_goes_away_ends_what_it_asked_for(fleet: Fleet) -> None:
    pid = await typed_answer(fleet, "far", "pid")
    waiting = asyncio.create_task(typed_answer(fleet, "far", "wait"))
    await until(lambda: fleet.messaging.open_frames == 1)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    await until(lambda: fleet.messaging.open_frames == 0)
    assert await typed_answer(fleet, "far", "pid") == pid
