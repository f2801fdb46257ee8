"""Whatever a handler does to its own process, its callers hear of it in words, and the next message works."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import pytest
import pytest_asyncio
from support import pallas_process
from support.apart import CREW, Hosted, hosted
from support.processes import gone
from support.waiting import until

from pallas.config.kinds import PumpLimits
from pallas.model import Fault, FaultType

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def crew(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hosted]:
    """One whose process the tests have ended again and again."""
    async with hosted(tmp_path_factory.mktemp("crew"), memory=96 * 1024**2) as made:
        yield made


@pytest.fixture(autouse=True)
def patient(crew: Hosted) -> None:
    """What it did in other tests does not count."""
    crew.host._replacements.clear()


def below() -> set[int]:
    """Processes that this one has started, however deep."""
    return {each.pid for each in pallas_process.below()}


async def cancelled(crew: Hosted, what: str) -> asyncio.Task[object]:
    """A message that is being handled, cancelled as at its timeout."""
    task: asyncio.Task[object] = asyncio.create_task(crew.host.handle(crew.delivery(what)))
    begun = _begun(crew)  # others may be under way: this one is meant
    await until(lambda: _begun(crew) == begun + 1)
    task.cancel()
    await asyncio.wait({task}, timeout=60)
    assert task.cancelled()
    return task


def _begun(crew: Hosted) -> int:
    """How many messages its process is about now."""
    connection = crew.host._connection
    return sum(each.has_begun for each in connection.calls.values()) if connection is not None else 0


@pytest.mark.slow
async def test_a_handler_that_never_lets_go_is_ended_and_the_next_message_works(crew: Hosted) -> None:
    # HC-32
    pid = crew.host.pid
    assert pid is not None
    await cancelled(crew, "loop")
    assert await crew.act("say", "next") == "next"
    assert crew.host.pid not in (None, pid)
    await until(lambda: gone(pid))
    assert crew.told == []


@pytest.mark.slow
async def test_one_that_catches_its_cancel_is_ended_and_others_in_it_may_try_again(crew: Hosted) -> None:
    pid = crew.host.pid
    other = asyncio.create_task(crew.reply("wait"))
    await until(lambda: _begun(crew) == 1)
    await cancelled(crew, "stubborn")
    with pytest.raises(Fault) as caught:
        await other
    assert caught.value.type is FaultType.TRANSPORT
    assert caught.value.retryable
    assert "did not end within 1 s of its cancel" in caught.value.message
    assert await crew.act("say", "next") == "next"
    assert crew.host.pid != pid


async def test_one_that_wants_too_much_memory_fails_alone(crew: Hosted) -> None:
    pid = crew.host.pid
    with pytest.raises(Fault) as caught:
        await crew.reply("hog")
    assert caught.value.type is FaultType.UPSTREAM
    assert "MemoryError" in caught.value.cause
    assert await crew.act("say", "next") == "next"
    assert crew.host.pid == pid


@pytest.mark.slow
async def test_one_that_keeps_all_memory_is_replaced(crew: Hosted) -> None:
    pid = crew.host.pid
    with pytest.raises(Fault) as caught:
        await crew.reply("keep hog")
    assert caught.value.type in (FaultType.UPSTREAM, FaultType.TRANSPORT)
    await until(lambda: crew.host.pid not in (None, pid))
    assert await crew.act("say", "next") == "next"
    assert crew.told == []


GARBAGE = {
    "what is not JSON": (repr(b"\xff\x00 garbage"), "not JSON"),
    "what is no message": (repr([1, 2]), "a frame holds no known message"),
    "an answer to nothing": (
        repr({"say": "HandlerReturned", "call": 4711}),
        "a question that it was not asked",
    ),
    "a message of an unknown class": (
        "{'say': 'HandlerReturned', 'call': CALL, 'message': {'to': None, 'key': 'a:B', 'xml': '<B/>'}}",
        "did not report",
    ),
    "an answer to something else": (
        "{'say': 'HandlerNotLoaded', 'call': CALL, 'message': 'no'}",
        "it does not answer what it was asked",
    ),
    "a question where no model is": (
        "{'say': 'ModelQuestion', 'call': CALL, 'question': 1, 'model': 'any', 'messages': []}",
        "where there is none",
    ),
    "a class that is none": (
        repr({"say": "PayloadClass", "key": "a:B", "described": {"fields": 3}}),
        "report on a class is invalid",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", list(GARBAGE))
async def test_what_is_no_message_of_the_protocol_ends_it(crew: Hosted, what: str) -> None:
    said, words = GARBAGE[what]
    pid, connection = crew.host.pid, crew.host._connection
    assert connection is not None
    said = said.replace("CALL", str(connection.calls_made + 1))
    with pytest.raises(Fault) as caught:
        await crew.reply("send", said)
    assert caught.value.type is FaultType.PROTOCOL, caught.value.message
    assert words in caught.value.message or words in str(connection._ended_by_fleet)
    assert await crew.act("say", "next") == "next"
    assert crew.host.pid != pid


@pytest.mark.slow
async def test_a_frame_that_is_too_long_ends_it(crew: Hosted) -> None:
    pid = crew.host.pid
    with pytest.raises(Fault) as caught:
        await crew.reply("send", "b'a' * 4_000_000")
    assert caught.value.type is FaultType.PROTOCOL
    assert "bytes was announced" in caught.value.message
    assert await crew.act("say", "next") == "next"
    assert crew.host.pid != pid


@pytest.mark.slow
async def test_one_that_hangs_up_is_replaced(crew: Hosted) -> None:
    pid = crew.host.pid
    with pytest.raises(Fault) as caught:
        await crew.reply("hang up")
    assert "closed its channel" in caught.value.message
    assert await crew.act("say", "next") == "next"
    assert crew.host.pid != pid


@pytest.mark.slow
async def test_messages_that_it_had_not_begun_go_to_the_next_process(crew: Hosted) -> None:
    looping = asyncio.create_task(crew.host.handle(crew.delivery("loop")))
    connection = crew.host._connection
    assert connection is not None
    await until(lambda: any(each.has_begun for each in connection.calls.values()))
    others = [asyncio.create_task(crew.act("say", str(each))) for each in range(5)]
    await until(lambda: len(connection.calls) == 6)
    looping.cancel()
    assert await asyncio.gather(*others) == ["0", "1", "2", "3", "4"]
    assert crew.host._connection is not connection


async def test_a_flood_of_records_does_not_drown_the_log(
    crew: Hosted, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await crew.act("log", "drip", 4_000)
    assert len(caplog.records) < 1_500
    assert await crew.act("say", "next") == "next"


@pytest.mark.slow
async def test_one_that_forks_without_end_is_ended_with_all_of_them(crew: Hosted) -> None:
    before = below()
    with pytest.raises(Fault) as caught:
        await crew.reply("forks", number=80)
    assert "more than 64 processes" in caught.value.message
    assert await crew.act("say", "next") == "next"
    await until(lambda: len(below() - before) <= 2)


async def test_it_has_the_limits_that_the_documentation_says(crew: Hosted) -> None:
    assert await crew.act("limits") == "[(1024, 1024), (0, 0)]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "number", "words"),
    [("die", 3, "exit status 3"), ("segfault", 0, "SIGSEGV"), ("kill", 0, "SIGKILL")],
)
async def test_a_death_by_itself_is_told_to_who_looks_after_it(
    tmp_path_factory: pytest.TempPathFactory, what: str, number: int, words: str
) -> None:
    async with hosted(tmp_path_factory.mktemp("dies")) as crew:
        pid = crew.host.pid
        assert pid is not None
        asked = asyncio.create_task(crew.reply("wait" if what == "kill" else what, number=number))
        if what == "kill":
            connection = crew.host._connection
            assert connection is not None
            await until(lambda: any(each.has_begun for each in connection.calls.values()))
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(Fault) as caught:
            await asked
        assert caught.value.type is FaultType.TRANSPORT
        assert caught.value.retryable
        assert words in caught.value.message
        [told] = crew.told
        assert words in told
        assert crew.host.pid is None
        with pytest.raises(Fault, match="not running"):
            await crew.reply("say")
        if what == "die":  # whoever looks after it starts it again, with the code that it had
            await crew.host.start()
            assert await crew.act("say", "again") == "again"
            assert crew.host.files == ("crew.py",)


@pytest.mark.slow
async def test_one_that_has_to_be_ended_again_and_again_is_given_up(crew: Hosted) -> None:
    crew.host._replacements.extend([monotonic()] * 4)
    with pytest.raises(Fault):
        await crew.reply("send", "[]")
    assert crew.told == []
    with pytest.raises(Fault):
        await crew.reply("send", "[]")
    assert len(crew.told) == 1
    assert "5 of them in a minute" in crew.told[0]
    crew.told.clear()
    await crew.host.start()
    assert await crew.act("say", "next") == "next"


@pytest.mark.slow
async def test_it_comes_back_with_the_code_that_it_was_loaded_with(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("edited")
    async with hosted(root) as crew:
        (root / "crew.py").write_text("raise RuntimeError('saved in the middle of a change')")
        with pytest.raises(Fault):
            await crew.reply("send", "[]")
        assert await crew.act("say", "as it was") == "as it was"
        await crew.host.park(2.0)
        assert crew.host.pid is None
        await crew.host.start()
        assert await crew.act("say", "as it was") == "as it was"


@pytest.mark.slow
async def test_nothing_of_it_is_left_when_its_fleet_has_ended_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    before = below()
    async with hosted(tmp_path_factory.mktemp("leaves")) as crew:
        forked = [int(each) for each in (await crew.act("fork")).split()]
        assert not any(gone(each) for each in forked)
        waiting = asyncio.create_task(crew.reply("wait"))
        blocked = asyncio.create_task(crew.reply("loop"))
        connection = crew.host._connection
        assert connection is not None
        await until(lambda: sum(each.has_begun for each in connection.calls.values()) == 2)
    for each in (waiting, blocked):
        with pytest.raises(Fault):
            await each
    await until(lambda: all(gone(each) for each in forked))
    await until(lambda: not below() - before)


@pytest.mark.slow
async def test_a_handler_that_catches_its_cancel_does_not_use_up_the_time_to_close(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with hosted(tmp_path_factory.mktemp("stubborn")) as crew:
        stubborn = asyncio.create_task(crew.reply("stubborn"))
        await until(lambda: _begun(crew) == 1)
        async with asyncio.timeout(120):
            await crew.host.close(3_600.0)
    with pytest.raises(Fault):
        await stubborn


FLEET = """
import asyncio, sys
from pathlib import Path
from support.apart import hosted

async def main():
    async with hosted(Path(sys.argv[1])) as crew:
        print(crew.host.pid, *(await crew.act("fork")).split(), flush=True)
        await crew.reply("loop")

asyncio.run(main())
"""


@pytest.mark.slow
async def test_nothing_of_it_outlives_a_fleet_that_is_killed(tmp_path: Path) -> None:
    path = os.pathsep.join(str(Path(__file__).parents[each]) for each in (1, 2))
    # A killed fleet removes no temporary folders: they are in the test's own.
    (temporary := tmp_path / "tmp").mkdir()
    fleet = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FLEET, str(tmp_path / "project")),
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(temporary)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert fleet.stdout is not None
    try:
        async with asyncio.timeout(60):
            pids = [int(each) for each in (await fleet.stdout.readline()).split()]
    finally:
        fleet.kill()
        await fleet.wait()
    assert len(pids) == 3
    await until(lambda: all(gone(each) for each in pids))


@pytest.mark.slow
async def test_a_message_may_be_as_long_as_the_project_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    root: Path = tmp_path_factory.mktemp("long")
    async with hosted(root, CREW, limits=PumpLimits(bytes=10_000)) as crew:
        assert len(await crew.act("size", number=9_000)) == 9_000
        with pytest.raises(Fault) as caught:
            await crew.reply("size", number=11_000)
        assert "10,000" in caught.value.message
