"""The web server: our page around textual-serve's terminal, behind the door."""

import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from textual_serve.server import Server

from .web_access import PARAMETER, Door
from .web_session import HEIGHTS, WIDTHS, WebSession, clamped

log = logging.getLogger(__name__)

MAX_SESSIONS: Final = 8
"""Tabs at once: each is a process of some 80 MB."""
_HERE: Final = Path(__file__).parent
_MAX_MESSAGE: Final = 1024 * 1024


class WebServer(Server):
    """Serves workbenches on a fleet, one for each tab; ``arguments`` are those of `pallas` in a tab.

    ``tell`` prints a line where the person who started it looks. ``token`` is for the fleet.
    """

    def __init__(
        self,
        arguments: list[str],
        *,
        host: str,
        port: int,
        token: str,
        name: str,
        tell: Callable[[str], None],
    ) -> None:
        super().__init__("pallas", host=host, port=port, title=name)
        self.door = Door(host, self._used)
        self._arguments = arguments
        self._token = token
        self._tell = tell
        self._sessions: set[WebSession] = set()
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        """What to open in a browser now; works once."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"http://{host}:{self.port}/?{PARAMETER}={self.door.key}"

    async def start(self) -> None:
        """Listen. Raises OSError when that cannot be had."""
        self._runner = web.AppRunner(
            await self._make_app(), access_log=None, handle_signals=False, shutdown_timeout=2.0
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        self._tell(f"open {self.address}")

    async def stop(self) -> None:
        """Close the page and end every workbench."""
        sessions = [*self._sessions]
        for session in sessions:
            await session.remote_close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _make_app(self) -> web.Application:
        app = web.Application(middlewares=[self.door.check], client_max_size=_MAX_MESSAGE)
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/ws", self.handle_websocket),
                web.get("/download/{key}", self.handle_download),
                web.static("/static", self.statics_path),
            ]
        )
        return app

    async def _page(self, request: web.Request) -> web.Response:
        nonce = secrets.token_urlsafe(16)
        page = (_HERE / "page.html").read_text("utf-8")
        # Where the page came from is where its terminal is: also behind `ssh -L` with another port.
        scheme = "wss" if request.secure else "ws"
        values = {
            "{{ nonce }}": nonce,
            "{{ title }}": _escaped(self.title),
            "{{ websocket }}": _escaped(f"{scheme}://{request.host}/ws"),
        }
        for name, value in values.items():
            page = page.replace(name, value)
        policy = (
            f"default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; "
            "font-src 'self' data:; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'"
        )
        return web.Response(text=page, content_type="text/html", headers={"content-security-policy": policy})

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """One tab, from its opening to its end."""
        websocket = web.WebSocketResponse(heartbeat=15, max_msg_size=_MAX_MESSAGE)
        if len(self._sessions) >= MAX_SESSIONS:
            raise web.HTTPServiceUnavailable(
                text=f"{MAX_SESSIONS} tabs are open already; close one of them\n"
            )
        session = WebSession(
            self._arguments,
            self._token,
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=websocket.close,
            download_manager=self.download_manager,
        )
        self._sessions.add(session)
        try:
            await websocket.prepare(request)
            width = clamped(request.query.get("width"), *WIDTHS, default=80)
            height = clamped(request.query.get("height"), *HEIGHTS, default=24)
            await session.start(width, height)
            with suppress(ConnectionError):
                await self._process(websocket, session)
        finally:
            self._sessions.discard(session)
            await session.stop()
            await websocket.close()
        return websocket

    async def _process(self, websocket: web.WebSocketResponse, session: WebSession) -> None:
        """What the tab sends: keys, sizes. Anything else ends it."""
        async for message in websocket:
            if message.type is not web.WSMsgType.TEXT:
                continue
            try:
                kind, *rest = message.json()
                await self._take(websocket, session, kind, rest[0] if rest else None)
            except (ValueError, TypeError, KeyError, AttributeError):
                log.warning("a tab sent something that cannot be read, and was closed")
                return

    async def _take(
        self, websocket: web.WebSocketResponse, session: WebSession, kind: str, data: Any
    ) -> None:
        if kind == "stdin":
            await session.send_bytes(data.encode("utf-8", "replace"))
        elif kind == "resize":
            await session.set_terminal_size(data["width"], data["height"])
        elif kind == "ping":
            await websocket.send_json(["pong", data])
        elif kind == "blur":
            await session.blur()
        elif kind == "focus":
            await session.focus()

    def _used(self) -> None:
        self._tell(f"opened; for another browser: {self.address}")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;").replace("'", "&#39;")
