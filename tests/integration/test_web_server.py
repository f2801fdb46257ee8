"""The page of `pallas dev --web` without a browser: who gets in, what a tab is given, and how it ends."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from support import pallas_process
from support.control import FULL, READ, Served, serving
from support.projects import copy_sample
from support.waiting import until
from support.web import web_command

from pallas_tui.web import web_server as web_server
from pallas_tui.web.web_server import WebServer
from pallas_tui.web.web_session import WebSession, clamped


@pytest.fixture(autouse=True)
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))


class Open:
    """A web server on a fleet, and a browser's HTTP client."""

    def __init__(
        self, served: Served, server: WebServer, http: aiohttp.ClientSession, said: list[str]
    ) -> None:
        self.served, self.server, self.http, self.said = served, server, http, said
        self.url = f"http://127.0.0.1:{server.port}"

    async def get(self, path: str, **headers: str) -> tuple[int, str, Any]:
        async with self.http.get(self.url + path, headers=headers, allow_redirects=False) as answer:
            return answer.status, await answer.text(), answer.headers

    async def enter(self) -> None:
        """Open the printed address."""
        status, _, headers = await self.get(f"/?key={self.server.door.key}")
        assert (status, headers["location"]) == (303, "/")

    def tab(self, query: str = "width=100&height=30", **headers: str) -> Any:
        given = {"origin": self.url, **headers}
        return self.http.ws_connect(f"{self.url}/ws?{query}", headers=given)


@asynccontextmanager
async def opened(token: str = FULL, host: str = "127.0.0.1") -> AsyncIterator[Open]:
    said: list[str] = []
    async with serving() as served:
        server = WebServer(
            ["dev", "--attach", served.url], host=host, port=0, token=token, name="desk <b>", tell=said.append
        )
        await server.start()
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as http:
            try:
                yield Open(served, server, http, said)
            finally:
                await server.stop()


class Tab:
    """What a tab was sent."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.drawn = b""
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self.socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                self.drawn += message.data

    @property
    def over(self) -> bool:
        return self._task.done()

    async def shows(self, *texts: str) -> None:
        await until(lambda: all(text.encode() in self.drawn for text in texts), timeout=60)

    async def keys(self, keys: str) -> None:
        await self.socket.send_str(json.dumps(["stdin", keys]))


@pytest.fixture
def no_workbench(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in place of each tab's workbench that draws nothing and ends with the first byte."""
    code = "import sys; print('__GANGLION__', flush=True); sys.stdin.buffer.read(1)"

    async def start(session: WebSession, width: int = 80, height: int = 24) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-c", code, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        session._process, session._stdin = process, process.stdin
        return process

    monkeypatch.setattr(WebSession, "_open_app_process", start)


_others: set[int] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    """Processes of the tests before may be about to end: those that a test is about come after them."""
    _others.clear()
    _others.update(each.pid for each in pallas_process.below())


def children() -> list[psutil.Process]:
    """The processes that were started in this test."""
    return [each for each in pallas_process.below() if each.pid not in _others]


async def test_the_address_works_once_and_leaves_a_cookie_that_scripts_cannot_read() -> None:
    async with opened() as web:
        key = web.server.door.key
        assert web.said == [f"open http://127.0.0.1:{web.server.port}/?key={key}"]
        status, text, headers = await web.get("/")
        assert (status, "each address works once" in text) == (401, True)
        assert "set-cookie" not in headers
        status, _, headers = await web.get(f"/?key={key}")
        assert (status, headers["location"]) == (303, "/")
        cookie = headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert key not in headers["set-cookie"]
        assert web.server.door.key != key
        assert web.said[-1].endswith(f"/?key={web.server.door.key}")  # for another browser
        status, page, _ = await web.get("/")
        assert status == 200
        assert key not in page
        web.http.cookie_jar.clear()
        assert (await web.get(f"/?key={key}"))[0] == 401  # used up
        assert (await web.get("/?key="))[0] == 401
        assert (await web.get("/", cookie="pallas_00000000=x"))[0] == 401


async def test_everything_but_the_address_needs_the_cookie() -> None:
    async with opened() as web:
        for path in (
            "/static/js/textual.js",
            "/static/css/xterm.css",
            "/download/x",
            "/nothing",
            f"/ws?key={web.server.door.key}",
        ):
            assert (await web.get(path))[0] == 401, path
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await web.tab().__aenter__()
        assert refused.value.status == 401
        await web.enter()
        assert (await web.get("/static/js/textual.js"))[0] == 200
        assert (await web.get("/static/"))[0] in (403, 404)  # no list of files
        assert children() == []


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80@127.0.0.1", "[::1", "10.0.0.1"]
)
async def test_a_made_up_name_gets_nothing(host: str) -> None:
    async with opened() as web:
        await web.enter()
        for path in ("/", f"/?key={web.server.door.key}", "/static/js/textual.js"):
            assert (await web.get(path, host=host))[0] in (400, 421), path


async def test_another_site_opens_no_tab() -> None:
    async with opened() as web:
        await web.enter()
        foreign = (
            "http://evil.example",
            "null",
            "http://127.0.0.1:1",
            f"https://localhost:{web.server.port}",
        )
        for origin in foreign:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await web.tab(origin=origin).__aenter__()
            assert refused.value.status == 403, origin
            assert (await web.get("/", origin=origin))[0] == 403, origin
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await web.http.ws_connect(f"{web.url}/ws")
        assert refused.value.status == 403
        assert children() == []


async def test_the_page_loads_nothing_from_elsewhere_and_escapes_what_it_shows() -> None:
    async with opened() as web:
        await web.enter()
        _, page, headers = await web.get("/")
        assert "desk &lt;b> · Pallas" in page
        assert "https://" not in page
        assert f"ws://127.0.0.1:{web.server.port}/ws" in page
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.slow
async def test_a_tab_is_a_workbench_whose_token_is_in_its_environment_alone() -> None:
    async with opened() as web:
        await web.enter()
        async with web.tab() as socket:
            tab = Tab(socket)
            await tab.shows("desk", "concierge", "engineering")
            (process,) = children()
            assert FULL not in " ".join(process.cmdline())
            assert process.environ()["PALLAS_CONTROL_TOKEN"] == FULL
            assert process.environ()["PALLAS_WEB"] == "1"
            assert "PALLAS_CONTROL_READ_TOKEN" not in process.environ()
            assert FULL.encode() not in tab.drawn
            await socket.send_str(json.dumps(["resize", {"width": 60, "height": 20}]))
            await tab.keys("\x11")  # ctrl+q
            await until(lambda: tab.over, timeout=30)
        await until(lambda: children() == [])
        assert web.served.fleet.stopped == 0
        assert web.served.fleet.cancelled == []


@pytest.mark.slow
async def test_a_tab_with_a_token_to_look_says_so_and_changes_nothing() -> None:
    async with opened(token=READ) as web:
        await web.enter()
        async with web.tab() as socket:
            tab = Tab(socket)
            await tab.shows("desk (read-only)")
        await until(lambda: children() == [], timeout=30)


@pytest.mark.slow
async def test_a_workbench_ends_with_its_tab_also_one_that_vanishes() -> None:
    async with opened() as web:
        await web.enter()
        async with web.tab() as socket:
            await Tab(socket).shows("concierge")
            assert len(children()) == 1
            socket._response.connection.transport.abort()  # type: ignore[union-attr]
        await until(lambda: children() == [], timeout=30)
        await until(lambda: web.server._sessions == set())


@pytest.mark.parametrize(
    "message", ["no json", "{}", "[]", "7", '["stdin"]', '["stdin", 7]', '["resize", {}]', '["resize", 7]']
)
async def test_a_tab_that_sends_nonsense_is_closed_and_others_go_on(
    message: str, request: pytest.FixtureRequest
) -> None:
    if message != "no json":
        request.getfixturevalue("no_workbench")
    async with opened() as web:
        await web.enter()
        async with web.tab() as bad:
            tab = Tab(bad)
            await bad.send_str(message)
            await until(lambda: tab.over, timeout=30)
        await until(lambda: children() == [], timeout=30)
        assert (await web.get("/"))[0] == 200


@pytest.mark.usefixtures("no_workbench")
async def test_too_many_tabs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "MAX_SESSIONS", 1)
    async with opened() as web:
        await web.enter()
        async with web.tab():
            await until(lambda: len(children()) == 1)
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await web.tab().__aenter__()
            assert refused.value.status == 503
        await until(lambda: web.server._sessions == set(), timeout=30)


@pytest.mark.slow
async def test_the_end_of_the_server_is_the_end_of_its_tabs() -> None:
    async with opened() as web:
        await web.enter()
        socket = await web.tab()
        await Tab(socket).shows("concierge")
    await until(lambda: children() == [], timeout=30)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("100", 100),
        ("-5", 80),
        ("x", 80),
        ("9" * 30, 80),
        ("99999", 500),
        ("1", 20),
        (None, 80),
        (True, 80),
        (33.7, 33),
        (float("nan"), 80),
        (10**12, 500),
    ],
)
def test_sizes_are_those_of_a_terminal(value: Any, size: int) -> None:
    assert clamped(value, 20, 500, 80) == size


def test_a_session_hands_on_no_token_that_it_was_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALLAS_CONTROL_TOKEN", "of-somebody-else")
    monkeypatch.setenv("PALLAS_CONTROL_READ_TOKEN", "of-somebody-else")
    more: dict[str, Any] = dict.fromkeys(("write_bytes", "write_str", "close", "download_manager"))
    environment = WebSession([], "", **more)._build_environment()
    assert "of-somebody-else" not in environment.values()


@pytest.mark.slow
async def test_the_command_starts_a_fleet_of_its_own_and_stops_it(tmp_path: Path) -> None:
    root = copy_sample(tmp_path, hurry=True, tools=False)
    # A true start, for its environment is looked at.
    async with web_command(str(root), environment={}, forks=False) as command:
        address = command.addresses[0]
        assert address.startswith("http://127.0.0.1:")
        fleet = next(
            each for each in psutil.Process(command.process.pid).children() if "--serve" in each.cmdline()
        )
        token = fleet.environ()["PALLAS_CONTROL_TOKEN"]
        assert token not in command.said
        assert token not in " ".join(fleet.cmdline())
    assert not fleet.is_running()
    assert not list((tmp_path / "state").rglob("*.json"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--web", "--serve"], "--serve starts a fleet without a workbench"),
        (["--port", "1"], "are for --web only"),
        (["--token", "x"], "need --attach"),
        (["--attach", "127.0.0.1:1", "--token", "x", "--token-env", "Y"], "not both"),
        (["--attach", "http://me:secret@x", "--web"], "leave out the user name"),
        (["--attach", "127.0.0.1:1", "--token-env", "NOT_THERE", "--web"], "no such variable"),
        (["nowhere", "--web"], "no such folder"),
    ],
)
async def test_wrong_use_is_a_line_with_status_two(arguments: list[str], says: str, tmp_path: Path) -> None:
    process = await pallas_process.start_async(
        "dev", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=tmp_path, env={**os.environ},
    )  # fmt: skip
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    assert process.returncode == 2
    assert says in said.decode()
    assert "secret" not in said.decode()
    assert "Traceback" not in said.decode()
