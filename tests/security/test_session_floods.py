"""Floods of handshake-era sessions: what nobody uses makes room, and no caller takes the place of another."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.live import ask, client, module_fleet, write_project
from support.raw_client import INITIALIZE, handshake_headers

from pallas.fleet.fleet import Fleet
from pallas.surfaces import mcp_sessions
from pallas.surfaces.auth.static_tokens import make_token, sha256_of
from pallas.surfaces.mcp_sessions import place_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOKEN, OTHER = make_token(), make_token()
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST = {"jsonrpc": "2.0", "id": 5, "method": "tools/list"}
PING = {"jsonrpc": "2.0", "id": 6, "method": "ping"}


@module_fleet()
def fleet(folder: Path) -> Path:
    """Two agents, of which ``desk`` asks for a token, but not for a health check, and ``open`` does not."""
    tokens = {"ada": {"sha256": sha256_of(TOKEN)}, "bob": {"sha256": sha256_of(OTHER)}}
    return write_project(
        folder,
        {"desk": None, "open": None},
        keys={"open": {"auth": "off"}},
        top={"auth": {"dev": True, "tokens": tokens}},
    )


class Door:
    """An HTTP client of one agent, from an address of its own."""

    def __init__(self, fleet: Fleet, agent: str, address: str = "127.0.0.1", bearer: str = "") -> None:
        self.url = next(each.url for each in fleet.agents if each.name == agent)
        self._headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
        transport = httpx2.AsyncHTTPTransport(local_address=address)
        self._http = httpx2.AsyncClient(transport=transport, timeout=30)

    async def __aenter__(self) -> "Door":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def open(self) -> httpx2.Response:
        """The answer to an `initialize`."""
        return await self._http.post(self.url, json=INITIALIZE, headers=handshake_headers() | self._headers)

    async def session(self) -> str:
        """A session that is open; fails the test where it is refused."""
        answer = await self.open()
        assert answer.status_code == 200, answer.text
        return str(answer.headers["mcp-session-id"])

    async def say(self, session: str, body: dict[str, Any]) -> httpx2.Response:
        """The answer to a message in a session."""
        return await self._http.post(self.url, json=body, headers=handshake_headers(session) | self._headers)

    async def end(self, session: str) -> None:
        """End a session."""
        await self._http.delete(self.url, headers=handshake_headers(session) | self._headers)

    async def flood(self, sessions: int) -> list[str]:
        """So many sessions, one after the other, none of which is used."""
        return [await self.session() for _ in range(sessions)]


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["desk", "open"])
async def test_sessions_that_no_one_uses_make_room_for_the_next_ones(
    fleet: Fleet, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mcp_sessions.UNUSED == 500
    monkeypatch.setattr(mcp_sessions, "UNUSED", 50)
    bearer = TOKEN if agent == "desk" else ""
    async with (
        Door(fleet, agent, "127.0.2.1", bearer) as mine,
        Door(fleet, agent, "127.0.2.2") as flood,
    ):
        used, fresh = await mine.session(), await mine.session()
        assert (await mine.say(used, INITIALIZED)).status_code == 202
        assert (await mine.say(used, LIST)).status_code == 200
        opened = await flood.flood(70)
        # All of them cost memory until they end: the oldest did, and those of others stay.
        assert (await flood.say(opened[0], PING)).status_code == 404
        assert (await flood.say(opened[-1], PING)).status_code == 200
        assert (await mine.say(used, LIST)).status_code == 200
        assert (await mine.say(fresh, INITIALIZED)).status_code == 202
        assert (await mine.say(fresh, LIST)).status_code == 200
        async with client(fleet, agent, era="legacy", bearer=bearer or None) as late:
            assert await ask(late, "hello")
        for each in (*opened, used, fresh):
            await (mine if each in (used, fresh) else flood).end(each)


async def _used(door: Door, sessions: int) -> list[str]:
    found = await door.flood(sessions)
    for each in found:
        assert (await door.say(each, INITIALIZED)).status_code == 202
        assert (await door.say(each, PING)).status_code == 200
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits as they are, on a smaller scale: what is tried is who is counted with whom."""
    monkeypatch.setattr("pallas.surfaces.mcp_sessions.PER_CALLER", 4)
    monkeypatch.setattr("pallas.surfaces.mcp_sessions.UNVERIFIED", 6)
    monkeypatch.setattr("pallas.surfaces.mcp_sessions.MAX_SESSIONS", 12)


async def test_one_address_is_refused_in_words_and_others_are_served(fleet: Fleet, small: None) -> None:
    async with Door(fleet, "open", "127.0.3.1") as many, Door(fleet, "open", "127.0.3.2") as other:
        opened = await _used(many, 4)
        refused = await many.open()
        assert refused.status_code == 503
        assert "4 sessions" in refused.json()["error"]["message"]
        assert "DELETE" in refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) > 0
        session = await other.session()
        # What it holds goes on, and an end makes room.
        assert (await many.say(opened[0], PING)).status_code == 200
        await many.end(opened[0])
        opened[0] = await many.session()
        for each in opened:
            await many.end(each)
        await other.end(session)


async def test_callers_without_a_token_leave_places_for_those_with_one(fleet: Fleet, small: None) -> None:
    doors = [Door(fleet, "desk", f"127.0.4.{number}") for number in range(1, 5)]
    held: list[tuple[Door, str]] = []
    for door in doors[:3]:
        held += [(door, each) for each in await _used(door, 2)]
    assert (await doors[3].open()).status_code == 503
    for bearer in (TOKEN, OTHER):
        # From the same address as the flood: it is the caller who is counted, where one is known.
        verified = Door(fleet, "desk", "127.0.4.1", bearer)
        held += [(verified, each) for each in await _used(verified, 3)]
    for door, each in held:
        await door.end(each)
    session = await doors[3].session()
    await doors[3].end(session)
    for door in {*doors, *(door for door, _ in held)}:
        await door.__aexit__()


async def test_many_at_once_are_counted_while_they_open(fleet: Fleet, small: None) -> None:
    async with Door(fleet, "open", "127.0.5.1") as door:
        held = await _used(door, 3)
        answers = await asyncio.gather(*(door.open() for _ in range(12)))
        opened = [each.headers["mcp-session-id"] for each in answers if each.status_code == 200]
        assert opened
        assert {each.status_code for each in answers} <= {200, 503}
        alive = [each for each in opened if (await door.say(each, PING)).status_code == 200]
        assert len(alive) <= 1
        for each in (*held, *opened):
            await door.end(each)


async def test_a_request_that_opens_nothing_takes_no_place(fleet: Fleet, small: None) -> None:
    async with Door(fleet, "open", "127.0.6.1") as door:
        for _ in range(10):
            answer = await door._http.post(door.url, json=LIST, headers=handshake_headers())
            assert answer.status_code == 400
        session = await door.session()
        await door.end(session)


async def test_ipv6_addresses_of_one_network_are_one_caller() -> None:
    same = {place_of("2001:db8:1:2::1"), place_of("2001:db8:1:2:ffff::9"), place_of("2001:db8:1:2::")}
    assert len(same) == 1
    assert place_of("2001:db8:1:3::1") not in same
    assert place_of("127.0.0.1") != place_of("127.0.0.2")
    assert place_of("::ffff:10.0.0.1") == place_of("10.0.0.1")
