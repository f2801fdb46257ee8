"""Runs that ask an agent of another fleet: whichever of the two is killed, the other one's run goes on."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.live import ERAS, agent_module
from support.offline import offline_project
from support.served import Served, fault_in, served, text_of
from support.survivors import effects, project, rows
from support.waiting import until

from pallas.ledger import open_ledger
from pallas.model import RunRecord

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = """
rules:
  - when: {last: user}
    call: [{tool: far, arguments: {message: "work"}}]
  - when: {last: tool}
    say: "far says {{ result }}"
"""
DONE = 'done: {"result":"waited b"}'


def url_at(folder: Path) -> str:
    return f"sqlite:///{folder}/ledger.sqlite3"


def far_fleet(folder: Path) -> Path:
    """A fleet whose ``clerk`` writes a note, then waits for a door."""
    folder.mkdir()
    return project(folder / "p", url_at(folder), unfinished_calls={"shelf__wait": "repeat"})


def near_fleet(folder: Path, far: Served, **top: Any) -> Path:
    """A fleet whose ``far`` is that clerk; ``front`` is a router to it, ``lead`` a model whose peer it is."""
    folder.mkdir()
    return offline_project(
        folder / "p",
        {"far": None, "front": None, "lead": agent_module("lead")},
        SCRIPT,
        keys={
            "far": {"module": None, "kind": "remote", "url": far.url("clerk")},
            "front": {"module": None, "kind": "router", "agents": ["far"], "fallback": "far"},
            "lead": {"peers": ["far"]},
        },
        top={"bind": "127.0.0.1", "database_url": url_at(folder), **top},
    )


async def asked(fleet: Served, agent: str, era: str) -> str:
    """Ask that agent; empty if its fleet ends meanwhile."""
    with suppress(Exception):
        async with fleet.client(agent, era) as client:
            given = {"message": "work", "conversation_id": f"of {agent}"}
            return text_of(await client.call_tool("send_message", given))
    return ""


async def ended(folder: Path) -> Sequence[tuple[RunRecord, str]]:
    """The runs of that fleet once they are over, with the last rows of their threads."""
    ledger = await open_ledger(url_at(folder))

    async def all_over() -> list[RunRecord]:
        found = [run for run in (await ledger.runs.list()).items if run.thread]
        return found if found and all(run.status != "running" for run in found) else []

    try:
        runs = await until(all_over, timeout=90)
        return [(run, (await rows(ledger, run.thread))[-1]) for run in runs]
    finally:
        await ledger.close()


async def is_under_way(far: Path, runs: int) -> None:
    await until(lambda: effects(far).count("wait b") == runs, timeout=60)


async def test_a_killed_fleet_joins_the_runs_that_it_asked_for_elsewhere(tmp_path: Path) -> None:
    far_root = far_fleet(tmp_path / "far")
    with served(far_root) as far:
        await far.says("] running")
        near_root = near_fleet(tmp_path / "near", far)
        with served(near_root) as near:
            await near.says("] running")
            asking = [
                asyncio.create_task(asked(near, name, ERAS[number % 2]))
                for number, name in enumerate(("far", "front", "lead"))
            ]
            await is_under_way(far_root, 3)
            near.send(signal.SIGKILL)
            await near.ended()
            await asyncio.gather(*asking)
        with served(near_root) as near:
            for name in ("far", "front", "lead"):
                await near.logs(f"{name}: run")
            (far_root / "door").touch()
            found = await ended(tmp_path / "near")
            assert {run.agent for run, _ in found} == {"far", "front", "lead"}
            for run, last in found:
                assert (run.status, run.attempt) == ("ok", 2), run
                assert DONE in last, last
            # A conversation goes on there as if nothing had happened.
            assert await asked(near, "far", ERAS[0])
        assert sorted(effects(far_root)) == ["note a"] * 4 + ["wait b"] * 4
        assert {run.attempt for run, _ in await ended(tmp_path / "far")} == {1}


@pytest.mark.parametrize("era", ERAS)
async def test_a_run_elsewhere_whose_fleet_is_killed_is_asked_for_until_it_goes_on(
    tmp_path: Path, era: str
) -> None:
    far_root = far_fleet(tmp_path / "far")
    with served(far_root) as far:
        await far.says("] running")
        near_root = near_fleet(tmp_path / "near", far)
        with served(near_root) as near:
            await near.says("] running")
            asking = asyncio.create_task(asked(near, "far", era))
            await is_under_way(far_root, 1)
            far.send(signal.SIGKILL)
            await far.ended()
            await near.logs("the connection broke off, and far is asked again", timeout=60)
            with served(far_root):
                await is_under_way(far_root, 2)
                (far_root / "door").touch()
                assert await asking == DONE
                ((run, _),) = await ended(tmp_path / "near")
                assert (run.status, run.attempt) == ("ok", 1)
                ((run, _),) = await ended(tmp_path / "far")
                assert (run.status, run.attempt) == ("ok", 2)
    assert effects(far_root) == ["note a", "wait b", "wait b"]


async def test_a_run_elsewhere_is_cancelled_with_its_caller_and_not_when_it_is_handed_over(
    tmp_path: Path,
) -> None:
    far_root = far_fleet(tmp_path / "far")
    with served(far_root) as far:
        await far.says("] running")
        near_root = near_fleet(tmp_path / "near", far, drain="hand_over", drain_timeout=0.2)
        with served(near_root) as near:
            await near.says("] running")
            asking = asyncio.create_task(asked(near, "far", ERAS[0]))
            await is_under_way(far_root, 1)
            asking.cancel()  # its caller gives up
            with suppress(asyncio.CancelledError):
                await asking
            ((run, _),) = await ended(tmp_path / "far")
            assert run.status == "cancelled"
            asking = asyncio.create_task(asked(near, "front", ERAS[1]))
            await is_under_way(far_root, 2)
            near.send(signal.SIGTERM)
            await near.ended()
            await asking
        with served(near_root) as near:
            await near.logs("front: run")
            (far_root / "door").touch()
            found = {run.agent: (run.status, last) for run, last in await ended(tmp_path / "near")}
            assert found["front"] == ("ok", f"assistant complete: {DONE}")
        assert effects(far_root).count("wait b") == 2
        assert sorted(run.status for run, _ in await ended(tmp_path / "far")) == ["cancelled", "ok"]


async def test_a_message_that_is_asked_again_may_have_another_conversation_and_no_other_text(
    tmp_path: Path,
) -> None:
    root = far_fleet(tmp_path / "far")
    again = {"local.pallas/idempotency": "one", "local.pallas/join": True}

    async def sent(text: str, era: str, name: str, meta: dict[str, Any]) -> Any:
        async with fleet.client("clerk", era) as clerk:
            given = {"message": text, "conversation_id": name}
            return await clerk.call_tool("send_message", given, meta=meta)

    with served(root) as fleet:
        await fleet.says("] running")
        first = asyncio.create_task(sent("work", ERAS[0], "mine", {"local.pallas/idempotency": "one"}))
        await is_under_way(root, 1)
        joined = [asyncio.create_task(sent("work", era, "new", again)) for era in ERAS]
        for era in ERAS:
            assert "with another request before" in fault_in(await sent("tell", era, "mine", again))["error"]
        (root / "door").touch()
        assert {text_of(await each) for each in (first, *joined)} == {DONE}
        assert effects(root) == ["note a", "wait b"]
        # A key that nobody has used begins a run, and one whose run was cancelled does not.
        for era in ERAS:
            key = {"local.pallas/idempotency": f"of {era}", "local.pallas/join": True}
            assert text_of(await sent("hi", era, "new", key)) == "turn 1"
            gone = {"local.pallas/idempotency": f"gone {era}"}
            await sent("hi", era, "new", {**gone, "local.pallas/cancel": True})
            fault_in(await sent("hi", era, "new", {**gone, "local.pallas/join": True}))
