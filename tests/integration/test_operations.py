"""An operation that a test adds to the table, asked for in all ways that a fleet can be asked."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import httpx2
import pytest
from support.live import write_project
from support.waiting import until

from pallas.fleet.local_port import LocalPort
from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import (
    ArgumentRules,
    Fault,
    FaultType,
    FleetPort,
    FleetState,
    Notice,
    Page,
    ThreadRecord,
    TokenScope,
    operation,
)
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource

if TYPE_CHECKING:
    from pallas.fleet.fleet import Fleet

FULL, TEXTS = "full-token-of-the-tests", "texts-token-of-the-tests"


class MorePort(FleetPort):
    """The table with three operations more: everything that is written about them but the code."""

    @operation("POST /threads/{thread}/star", title="star thread {thread}")
    async def star_thread(
        self, thread: str, stars: Annotated[int, ArgumentRules(maximum=5)], because: str = ""
    ) -> Page[ThreadRecord]: ...  # type: ignore[empty-body]

    @operation("GET /stars/{agent}", scope=TokenScope.TEXTS, result_key="stars")
    async def stars(
        self,
        agent: Annotated[str, ArgumentRules(is_agent=True)],
        limit: Annotated[int, ArgumentRules(maximum=9)] = 3,
    ) -> int: ...  # type: ignore[empty-body]

    @operation("POST /stars/{agent}/fade", title="fade {agent}")
    def fade(self, agent: Annotated[str, ArgumentRules(is_agent=True)]) -> None: ...


class MoreLocal(MorePort, LocalPort):
    """The code that does them."""

    def __init__(self, fleet: "Fleet") -> None:
        LocalPort.__init__(self, fleet)
        self.faded: list[str] = []

    async def star_thread(self, thread: str, stars: int, because: str = "") -> Page[ThreadRecord]:
        if stars > 3:
            raise Fault(FaultType.CONFIG, "too many stars")
        return Page((ThreadRecord(thread, "one", "anonymous", f"{stars} {because}", "mcp", 1.0, 2.0),), "")

    async def stars(self, agent: str, limit: int = 3) -> int:
        return limit

    def fade(self, agent: str) -> None:
        self.faded.append(agent)


class MoreThreaded(MorePort, ThreadedFleet):
    def _port_of(self, fleet: "Fleet") -> FleetPort:
        return MoreLocal(fleet)


class MoreRemote(MorePort, RemoteFleet):
    pass


async def test_an_operation_of_the_table_can_be_asked_for_in_all_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    monkeypatch.setenv("PALLAS_CONTROL_TOKEN", FULL)
    monkeypatch.setenv("PALLAS_CONTROL_TEXTS_TOKEN", TEXTS)
    monkeypatch.chdir(tmp_path)
    threaded = MoreThreaded(write_project(tmp_path, {"one": None}))
    remote: MoreRemote | None = None
    threaded.start()
    try:
        await until(lambda: threaded.snapshot().state is FleetState.RUNNING, timeout=60)
        local: Any = threaded._port
        url = threaded.snapshot().registry_url.removesuffix("/.well-known/mcp/server.json")
        remote = MoreRemote(url, TokenSource(url, FULL))
        remote.start()
        await until(lambda: remote.can_control)
        for way in (local, threaded, remote):
            await _asked_for(way, local)
        await _asked_over_http(url, local)
    finally:
        if remote is not None:
            remote.stop()
        threaded.stop(10)
    remote.fade("one")  # there is no connection to ask over
    threaded.fade("one")
    (said,) = [each.text for each in threaded.since(0).events if isinstance(each, Notice)][-1:]
    assert said == "fade one was not done: the fleet is not running any more"


async def _asked_for(way: Any, local: MoreLocal) -> None:
    (starred,) = (await way.star_thread("t 1?", 2, because="nice")).items
    assert (starred.id, starred.title) == ("t 1?", "2 nice")
    assert await way.stars("one", limit=4) == 4
    with pytest.raises(Fault, match="too many stars") as refused:
        await way.star_thread("t", 4)
    assert refused.value.type is FaultType.CONFIG
    before = len(local.faded)
    way.fade("one")
    await until(lambda: len(local.faded) == before + 1)


async def _asked_over_http(url: str, local: MoreLocal) -> None:
    def client(token: str) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            base_url=f"{url}/api/v1/fleet",
            headers={"authorization": f"Bearer {token}"},
            trust_env=False,
            timeout=60,
        )

    async with client(FULL) as http:
        answer = await http.post("/threads/t/star", json={"stars": 1})
        assert (answer.status_code, answer.json()["items"][0]["title"]) == (200, "1 ")
        for body, says in (({"stars": "x"}, "stars:"), ({}, "stars:"), ({"stars": 1, "moons": 2}, "moons:")):
            answer = await http.post("/threads/t/star", json=body)
            assert answer.status_code == 400
            assert says in answer.json()["error"]
        assert (await http.get("/stars/one?limit=9")).json() == {"stars": 9}
        assert "from 0 to 9" in (await http.get("/stars/one?limit=10")).json()["error"]
        assert (await http.get("/stars/two")).status_code == 404
        before = len(local.faded)
        assert (await http.post("/stars/one/fade")).status_code == 202
        assert len(local.faded) == before + 1
    async with client(TEXTS) as http:
        assert (await http.get("/stars/one")).json() == {"stars": 3}
        for path in ("/threads/t/star", "/stars/one/fade"):
            assert (await http.post(path, json={"stars": 1})).status_code == 403
