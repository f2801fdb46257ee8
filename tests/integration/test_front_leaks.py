"""What many sessions and prompts leave behind of tasks, descriptors and processes: nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from support.live import running
from support.offline import offline_project
from support.pallas_process import below
from support.remotes import Other, other
from support.waiting import until
from support.workers import SIMPLE

from pallas.fleet.fleet import Fleet
from pallas.model import ANONYMOUS

SCRIPT = """
rules:
  - {when: {last: user}, say: "turn {{ turns }}"}
"""
HANDS = '''
async def upper(request):
    """Answers in capital letters."""
    return request.text.upper()
'''
ERAS = ("modern", "handshake")
AT_ONCE = 10


@pytest.fixture(params=ERAS)
async def there(request: pytest.FixtureRequest) -> AsyncIterator[Other]:
    async with other(era=request.param) as server:
        yield server


@pytest.fixture
async def fleet(tmp_path: Path, there: Other) -> AsyncIterator[Fleet]:
    """A handler, a worker and a remote agent."""
    root = offline_project(
        tmp_path / "p",
        {"hand": None, "coder": None, "far": None},
        SCRIPT,
        top={"bind": "127.0.0.1"},
        keys={
            "hand": {"kind": "handler", "module": None, "handler": "hands:upper"},
            "coder": {"kind": "worker", "module": None, "command": ["python", str(SIMPLE)]},
            "far": {"kind": "remote", "module": None, "url": there.url},
        },
        files={"hands.py": HANDS},
    )
    async with running(root) as fleet:
        yield fleet


def held() -> tuple[int, int, int]:
    """Tasks, descriptors and processes that there are."""
    here = psutil.Process()
    return len(asyncio.all_tasks()), here.num_fds(), len(below())


@pytest.mark.slow
async def test_sessions_and_prompts_leave_nothing(fleet: Fleet) -> None:
    # DR-9, DR-12
    sessions, room = fleet.surfaces.sessions, asyncio.Semaphore(AT_ONCE)

    async def leased(agent: str, *, ask: bool) -> None:
        async with room:
            made = await sessions.create(agent, ANONYMOUS)
            if ask:
                assert (await sessions.prompt(made.id, "hello", ANONYMOUS)).text
            assert await sessions.close(made.id, ANONYMOUS)

    async def all_of(count: int, *agents: str, ask: bool) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(leased(agents[number % len(agents)], ask=ask))

    await all_of(3 * AT_ONCE, "hand", "coder", "far", ask=True)  # what is kept for the next ones is there
    before = held()
    await all_of(300, "hand", "coder", "far", ask=False)
    await all_of(60, "coder", "far", ask=True)

    assert sessions.active == 0
    assert sessions.records() == ()
    # Connections that wait may be a few more or less; none for each session, or each prompt.
    await until(lambda: all(now <= then + AT_ONCE for now, then in zip(held(), before, strict=True)))
    await until(lambda: held()[2] <= before[2])
