"""Replicas as an operator sees them: on the command line, over REST, in health and registry, and drained."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from support.databases import Server, fresh_database
from support.live import ECHO, ERAS, running, write_project
from support.replicas import Replicas
from support.served import Served, served, text_of
from support.survivors import effects, ended_run, project
from support.waiting import poll, until

from pallas import __version__
from pallas.cli.app import run
from pallas.fleet.local_port import LocalPort
from pallas.model import Fault, FaultType

TOKEN = "the-control-token-of-the-tests"

type Body = dict[str, Any]


@pytest_asyncio.fixture
async def replicas(postgres: Server, tmp_path: Path) -> AsyncIterator[Replicas]:
    here = tmp_path / "here"
    here.mkdir()
    async with fresh_database(postgres) as url:
        with ExitStack() as stack:
            fleets = []
            for name in ("one", "two"):
                root = project(tmp_path / name, url, here=here, unfinished_calls={"*": "repeat"})
                fleets.append(stack.enter_context(served(root, PALLAS_CONTROL_TOKEN=TOKEN)))
            for fleet in fleets:
                await fleet.says("] running")
            yield Replicas(*fleets, url, here)


async def listed(fleet: Served, seen: Callable[[Sequence[Body]], bool]) -> list[Body]:
    """The replicas that a fleet lists, once they are as ``seen`` says."""

    async def replicas() -> list[Body]:
        found: list[Body] = (await fleet.get("/api/v1/replicas")).json()["items"]
        return found

    return await poll(replicas, seen)


async def listed_by(fleet: Served, *others: Served) -> dict[int, str]:
    """The ids of the replicas by process, once all of them serve."""
    pids = {each.process.pid for each in (fleet, *others)}
    await fleet.says("] running")
    found = await listed(
        fleet, lambda all_: {each["pid"] for each in all_ if each["state"] == "serving"} == pids
    )
    return {each["pid"]: each["id"] for each in found}


async def drain(fleet: Served, replica: str, token: str = TOKEN) -> httpx2.Response:
    """Ask a fleet to drain a replica."""
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        return await http.post(
            f"{fleet.registry}/api/v1/fleet/replicas/{replica}/drain",
            headers={"authorization": f"Bearer {token}"},
        )


@pytest.mark.slow
async def test_replicas_are_listed_with_what_they_do_and_took_over(
    replicas: Replicas, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = replicas.one, replicas.two
    found = await listed(one, lambda all_: [each["state"] for each in all_] == ["serving", "serving"])
    by_pid = {each["pid"]: each for each in found}
    assert set(by_pid) == {one.process.pid, two.process.pid}
    assert [each["isHere"] for each in found] == [each["pid"] == one.process.pid for each in found]
    assert {each["release"] for each in found} == {__version__}
    assert all(each["lastBeatSeconds"] is not None for each in found)
    for fleet in (one, two):
        own = by_pid[fleet.process.pid]["id"]
        # It counts once a second.
        page = await poll(partial(fleet.get, "/healthz"), lambda page: page.json()["replicas"] == 2)
        health = page.json()
        assert (health["status"], health["replica"]) == ("ok", own)
        catalogue = (await fleet.get("/.well-known/mcp/server.json")).json()
        assert catalogue["metadata"] == {"count": 1, "replica": own, "replicas": 2}
    assert {(each["runs"], each["continued"], each["takenOver"]) for each in found} == {(0, 0, 0)}

    async def work() -> None:
        with suppress(Exception):  # the connection breaks
            async with one.client("clerk", ERAS[0]) as clerk:
                await clerk.call_tool("send_message", {"message": "work", "conversation_id": "mine"})

    asking = asyncio.create_task(work())
    await until(lambda: "wait b" in effects(replicas.here), timeout=60)
    await listed(two, lambda all_: [each["runs"] for each in all_ if not each["isHere"]] == [1])
    one.send(signal.SIGKILL)
    await asking
    await until(lambda: effects(replicas.here).count("wait b") == 2, timeout=60)
    (left,) = await listed(two, lambda all_: len(all_) == 1)
    assert (left["pid"], left["runs"], left["continued"], left["takenOver"]) == (two.process.pid, 1, 1, 1)
    (replicas.here / "door").touch()
    await ended_run(replicas.url)
    await listed(two, lambda all_: (all_[0]["runs"], all_[0]["continued"], all_[0]["takenOver"]) == (0, 0, 1))

    def typed(*words: str) -> str:
        capsys.readouterr()
        assert run(["--project", str(two.root), *words]) == 0
        return capsys.readouterr().out

    head, row = (await asyncio.to_thread(typed, "get", "replicas")).splitlines()
    assert [word in head for word in ("ID", "HOST", "STATE", "LAST BEAT", "TAKEN OVER")] == [True] * 5
    assert f"{left['id']} *" in row
    assert "serving" in row
    body = json.loads(await asyncio.to_thread(typed, "get", "replicas", "-o", "json"))
    assert [each["id"] for each in body["items"]] == [left["id"]]
    assert left["id"] in await asyncio.to_thread(typed, "get", "replica", left["id"], "-o", "yaml")
    assert "Taken over" in await asyncio.to_thread(typed, "describe", "replica", left["id"])


@pytest.mark.slow
@pytest.mark.parametrize("asked_at", ["itself", "another"])
async def test_a_replica_drains_whichever_is_asked_and_its_runs_end_first(
    replicas: Replicas, asked_at: str
) -> None:
    one, two = replicas.one, replicas.two
    asked_fleet = one if asked_at == "itself" else two
    found = await listed(two, lambda all_: [each["state"] for each in all_] == ["serving", "serving"])
    target = next(each["id"] for each in found if each["pid"] == one.process.pid)
    other = next(each["id"] for each in found if each["pid"] == two.process.pid)
    async with one.client("clerk", ERAS[1]) as clerk:
        message = {"message": "work", "conversation_id": "mine"}
        asking = asyncio.create_task(clerk.call_tool("send_message", message))
        await until(lambda: "wait b" in effects(replicas.here), timeout=60)
        done = await drain(asked_fleet, target)
        assert (done.status_code, done.json()) == (200, {"draining": True})
        await listed(two, lambda all_: {each["id"]: each["state"] for each in all_}[target] == "draining")
        # Asked again it goes on draining: a second signal would have ended it at once.
        for fleet in (one, two):
            refused = await drain(fleet, target)
            assert refused.status_code == 409
            assert f"replica {target} is draining already" in refused.json()["error"]
        (replicas.here / "door").touch()
        assert "waited b" in text_of(await asking)
    assert await one.ended() == 0
    if asked_at == "another":
        assert f"replica {other}" in (await one.logs("was asked to drain"))["message"]
    (left,) = await listed(two, lambda all_: len(all_) == 1)
    assert (left["id"], left["takenOver"]) == (other, 0)
    run_, _ = await ended_run(replicas.url)
    assert (run_.status, run_.attempt) == ("ok", 1)
    gone = await drain(two, target)
    assert gone.status_code == 404
    assert "pallas get replicas" in gone.json()["error"]


@pytest.mark.slow
async def test_a_replica_is_drained_from_the_command_line_through_another_one(
    replicas: Replicas, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = replicas.one, replicas.two
    monkeypatch.setenv("PALLAS_CONTROL_TOKEN", TOKEN)
    found = await listed(two, lambda all_: [each["state"] for each in all_] == ["serving", "serving"])
    target = next(each["id"] for each in found if each["pid"] == one.process.pid)

    def typed(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = run(["--project", str(two.root), "drain", *words])
        return status, *capsys.readouterr()

    status, out, _ = await asyncio.to_thread(typed, target)
    assert (status, out) == (0, f"replica/{target} drains\n")
    assert await one.ended() == 0
    await listed(two, lambda all_: len(all_) == 1)
    status, _, err = await asyncio.to_thread(typed, target)
    assert status == 1
    assert f"replica/{target}: replica not found" in err
    two.send(signal.SIGTERM)
    assert await two.ended() == 0
    status, _, err = await asyncio.to_thread(typed, target)
    assert status == 3
    assert "no fleet" in err


@pytest.mark.slow
async def test_a_fleet_on_an_sqlite_file_is_drained_through_another_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.sqlite3"
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(served(project(tmp_path / name, url), PALLAS_CONTROL_TOKEN=TOKEN))
            for name in ("one", "two")
        )
        found = await listed_by(two, one)
        assert (await drain(two, found[one.process.pid or 0])).status_code == 200
        assert await one.ended() == 0
        (left,) = await listed(two, lambda all_: len(all_) == 1)
        assert left["pid"] == two.process.pid


@pytest.mark.slow
async def test_a_token_that_may_only_look_drains_no_replica(postgres: Server, tmp_path: Path) -> None:
    reader = "the-reading-token-of-the-tests"
    async with fresh_database(postgres) as url:
        with ExitStack() as stack:
            tokens = {"PALLAS_CONTROL_TOKEN": TOKEN, "PALLAS_CONTROL_READ_TOKEN": reader}
            one, two = (
                stack.enter_context(served(project(tmp_path / name, url), **tokens))
                for name in ("one", "two")
            )
            found = await listed_by(two, one)
            refused = await drain(two, found[one.process.pid or 0], reader)
            assert refused.status_code == 403
            unknown = await drain(two, found[one.process.pid or 0], "another-token-of-the-tests")
            assert unknown.status_code == 401


async def test_a_fleet_of_a_workbench_is_not_drained_and_one_without_a_ledger_has_no_replicas(
    tmp_path: Path,
) -> None:
    root = write_project(tmp_path / "project", {"echo": None}, config=dict(ECHO))
    async with running(root, database=f"sqlite:///{tmp_path}/l.sqlite3") as fleet:
        port = LocalPort(fleet)
        (own,) = (await port.replicas()).items
        assert (own.state, own.is_here, own.beat_age) == ("serving", True, None)
        assert (fleet.snapshot().replica, fleet.snapshot().replicas) == (own.id, 1)
        with pytest.raises(Fault, match="runs in a workbench") as refused:
            await port.drain_replica(own.id)
        assert refused.value.type is FaultType.CONFIG
    async with running(root) as fleet:
        assert (fleet.snapshot().replica, fleet.snapshot().replicas) == ("", 0)
        with pytest.raises(Fault, match="keeps nothing"):
            await LocalPort(fleet).replicas()
