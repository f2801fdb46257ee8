"""An MCP server of the standard library that notes what it executes: on stdio or HTTP, in one version.

``python counting_server.py FOLDER``. ``FOLDER/server.json`` says what it is; ``support.counted`` writes it.
Each tool takes a ``number`` and answers ``TOOL NUMBER by version VERSION``. One whose name begins with
``wait`` answers when the file ``gate`` is there. Each line of ``log.jsonl`` is an event.

A file ``hold`` keeps the requests back that open a connection. A file ``broken`` breaks the server: on stdio
it ends at its start, over HTTP it opens sessions and then knows none of them. SIGUSR1 has it read
``server.json`` again and notify of other tools, SIGUSR2 forget its sessions.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

_MODERN: Final = "2026-07-28"
_HANDSHAKE: Final = "2025-11-25"
_OPENING: Final = ("initialize", "server/discover", "tools/list")
_MOST_WAITING: Final = 1_000
_CHANGED: Final = "notifications/tools/list_changed"
# What SDKs of the handshake versions answer where a session is unknown, and where none is named: status, id,
# code and text. They are Python 1.x and the sample of TypeScript 1.x.
_REFUSALS: Final[dict[str, tuple[tuple[int, Any, int, str], ...]]] = {
    "python": (
        (404, "server-error", -32600, "Session not found"),
        (400, "server-error", -32600, "Bad Request: Missing session ID"),
    ),
    "typescript": ((400, None, -32000, "Bad Request: No valid session ID provided"),) * 2,
}


class CountingServer:
    """What both transports share. ``FOLDER`` must exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = threading.Event()
        self._log = os.open(folder / "log.jsonl", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._is_flooding = False
        self.read_settings()
        self.note("start")

    def read_settings(self) -> None:
        """Be what the file says now."""
        self.settings = json.loads((self._folder / "server.json").read_text("utf-8"))
        self.is_modern = self.settings["protocol"] == _MODERN

    def note(self, event: str, **facts: Any) -> None:
        """Write a line of the log, whole."""
        line = json.dumps({"event": event, "pid": os.getpid(), **facts}) + "\n"
        os.write(self._log, line.encode())

    def has(self, name: str) -> bool:
        """Whether a file of that name is there."""
        return (self._folder / name).exists()

    def wait_for(self, name: str, *, absent: bool = False) -> None:
        """Wait until a file is there, or is not."""
        while self.has(name) is absent:
            time.sleep(0.01)

    def follow_signals(self, forget: Any = lambda: None) -> None:
        """Follow SIGUSR1 and SIGUSR2; ``forget`` forgets the sessions."""

        def on_forget(*_: object) -> None:
            forget()
            self.note("forgot")

        signal.signal(signal.SIGUSR1, lambda *_: self._changed.set())
        signal.signal(signal.SIGUSR2, on_forget)
        threading.Thread(target=self._notify, daemon=True).start()

    def send_to_listeners(self, messages: Iterable[dict[str, Any]]) -> None:
        """Send notifications to those who listen: of the transport."""

    def listeners(self) -> list[Any]:
        """The ids of the requests of 2026-07-28 that listen."""
        return []

    def backlog(self) -> int:
        """How many notifications wait to be sent."""
        return 0

    def flood(self) -> None:
        """Send the notification of the setting ``floods`` without end, as fast as it is taken."""
        message = {"jsonrpc": "2.0", **self.settings["floods"]}
        while True:
            self.send_to_listeners([message])
            while self.backlog() > _MOST_WAITING:
                time.sleep(0.001)

    def _notify(self) -> None:
        while self._changed.wait():
            self._changed.clear()
            self.read_settings()
            self.send_to_listeners([{"jsonrpc": "2.0", "method": _CHANGED}])
            self.note("notified")

    def response(self, message: dict[str, Any]) -> dict[str, Any]:
        """The response to a request, once it is executed."""
        method, params = message["method"], message.get("params") or {}
        if method in _OPENING:
            self.note("opening", method=method)
            self.wait_for("hold", absent=True)
        result: dict[str, Any] | None = None
        if method == "tools/list" and "floods" in self.settings and not self._is_flooding:
            self._is_flooding = True
            threading.Thread(target=self.flood, daemon=True).start()
        if method == "tools/call":
            result = {"content": [{"type": "text", "text": self._execute(params)}]}
        elif method == "tools/list":
            schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
            names = self.settings["tools"]
            result = {"tools": [{"name": name, "description": name, "inputSchema": schema} for name in names]}
        elif method == "ping":
            result = {}
        elif method == ("server/discover" if self.is_modern else "initialize"):
            result = {"capabilities": {"tools": {"listChanged": self.settings["notifies"]}}}
            if self.is_modern:
                result["supportedVersions"] = [_MODERN]
            else:
                result |= {"protocolVersion": _HANDSHAKE, "serverInfo": self._info()}
        if result is None:
            return _error(message["id"], -32601, "Method not found")
        if self.is_modern:
            result |= {
                "resultType": "complete",
                "_meta": {"io.modelcontextprotocol/serverInfo": self._info()},
            }
            if method in _OPENING:
                result |= {"cacheScope": "private", "ttlMs": 0}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    def _info(self) -> dict[str, str]:
        return {"name": "counting", "version": self.settings["version"]}

    def _execute(self, params: dict[str, Any]) -> str:
        tool, number = params["name"], params["arguments"]["number"]
        if tool not in self.settings["tools"]:
            return f"no tool {tool}"
        self.note("executed", number=number, tool=tool)
        if tool.startswith("wait"):
            self.wait_for("gate")
        return f"{tool} {number} by version {self.settings['version']}"


def _error(number: Any, code: int, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}}


def acknowledged(message: dict[str, Any]) -> dict[str, Any]:
    """What a request to listen gets first."""
    params = {
        "_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]},
        "notifications": message["params"]["notifications"],
    }
    return {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}


def subscribed(message: dict[str, Any], listener: Any) -> dict[str, Any]:
    """A notification for a request that listens."""
    return {**message, "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": listener}}}


class StdioCountingServer(CountingServer):
    """On standard input and output.

    ``first`` is what it does with a first message that is not ``initialize``: ``answer``, ``exit``,
    ``silence`` or ``null``, an error with that id. With ``loads`` it says on stderr that it loads, and reads
    after so many seconds; with ``loads: 1`` when the file ``ready`` is there. With ``stays`` neither the end
    of its input nor SIGTERM end it.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._lock = threading.Lock()
        self._listeners: list[Any] = []

    def run(self) -> None:
        """Answer until standard input ends."""
        if self.has("broken"):
            sys.exit("it is broken")
        self.follow_signals()
        if loads := self.settings["loads"]:
            print("loading the model", file=sys.stderr, flush=True)
            time.sleep(loads) if loads > 1 else self.wait_for("ready")
        if self.settings["stays"]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        is_open = self.settings["first"] == "answer"
        for line in sys.stdin.buffer:
            message = json.loads(line)
            self.note("message", method=message.get("method"))
            is_open = is_open or message["method"] == "initialize"
            if not is_open:
                self._refuse()
            elif message.get("method") == "subscriptions/listen" and self.is_modern:
                self._listeners.append(message["id"])
                self.note("listened")
                self._write(acknowledged(message))
            elif "id" in message:
                threading.Thread(target=self._answer, args=(message,), daemon=True).start()
        while self.settings["stays"]:
            time.sleep(600)

    def _refuse(self) -> None:
        if self.settings["first"] == "exit":
            sys.exit("expected initialize")
        if self.settings["first"] == "null":
            self._write(_error(None, -32600, "expected initialize"))

    def _answer(self, message: dict[str, Any]) -> None:
        self._write(self.response(message))

    def send_to_listeners(self, messages: Iterable[dict[str, Any]]) -> None:
        """In the handshake versions to the client, in 2026-07-28 for each request that listens."""
        for message in messages:
            if not self.is_modern:
                self._write(message)
            for listener in self._listeners:
                self._write(subscribed(message, listener))

    def _write(self, message: dict[str, Any]) -> None:
        with self._lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()


class HttpCountingServer(CountingServer):
    """Over HTTP, on the port of the settings; it refuses sessions in the words of the SDK ``refusal``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sessions: set[str] = set()
        self.streams: dict[queue.Queue[dict[str, Any]], Any] = {}
        """Those that are open, with the ids of the requests that listen; None in the handshake versions."""

    def run(self) -> None:
        """Serve until it is killed."""
        server = _Threads(("127.0.0.1", self.settings["port"]), _handler_of(self))
        self.follow_signals(self.sessions.clear)
        self.note("listening")
        server.serve_forever()

    def backlog(self) -> int:
        """Those in the longest queue."""
        return max((stream.qsize() for stream in list(self.streams)), default=_MOST_WAITING + 1)

    def send_to_listeners(self, messages: Iterable[dict[str, Any]]) -> None:
        """To each open stream."""
        for message in messages:
            for stream, listener in list(self.streams.items()):
                stream.put(message if listener is None else subscribed(message, listener))


class SseCountingServer(HttpCountingServer):
    """Over the older HTTP transport: messages are posted, and all answers are events of one stream."""

    def run(self) -> None:
        """Serve until it is killed."""
        self.opened: dict[str, queue.Queue[dict[str, Any] | None]] = {}
        server = _Threads(("127.0.0.1", self.settings["port"]), _sse_handler_of(self))
        self.follow_signals(self._forget)
        self.note("listening")
        server.serve_forever()

    def _forget(self) -> None:
        for stream in self.opened.values():
            stream.put(None)
        self.opened.clear()

    def answer(self, session: str, message: dict[str, Any]) -> None:
        """Put the response to a request into the stream of its session."""
        response = self.response(message)
        if (stream := self.opened.get(session)) is not None:
            stream.put(response)

    def backlog(self) -> int:
        """Those in the longest queue."""
        return max((stream.qsize() for stream in list(self.opened.values())), default=_MOST_WAITING + 1)

    def send_to_listeners(self, messages: Iterable[dict[str, Any]]) -> None:
        """To each open stream."""
        for message in messages:
            for stream in list(self.opened.values()):
                stream.put(message)


def _sse_handler_of(counting: SseCountingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(_handler_of(counting)):  # type: ignore[misc]
        def do_GET(self) -> None:
            session = os.urandom(8).hex()
            stream = counting.opened[session] = queue.Queue()
            self.begin_stream()
            event = f"event: endpoint\r\ndata: /messages?session={session}\r\n\r\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            counting.note("listened")
            while (message := stream.get()) is not None:
                self.send_event(message)
            self.wfile.write(b"0\r\n\r\n")

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            counting.note("message", method=message.get("method"))
            session = self.path.rpartition("session=")[2]
            if counting.has("broken") or session not in counting.opened:
                self.send_body(404)
                return
            self.send_body(202)
            if "id" in message and "method" in message:
                threading.Thread(target=counting.answer, args=(session, message), daemon=True).start()

    return Handler


class _Threads(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that go."""


def _handler_of(counting: HttpCountingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            session = self.headers.get("Mcp-Session-Id")
            if counting.is_modern or session not in counting.sessions:
                self.send_body(405)
                return
            self.stream(None)

        def do_DELETE(self) -> None:
            counting.sessions.discard(self.headers.get("Mcp-Session-Id", ""))
            self.send_body(200)

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            method, number = message.get("method"), message.get("id")
            counting.note("message", method=method)
            if counting.is_modern:
                self.answer_modern(message)
            elif method == "initialize":
                self.open_session(message)
            elif (refusal := self.refusal()) is not None:
                status, refused, code, text = refusal
                self.send_json(_error(refused, code, text), status)
            elif number is None:
                self.send_body(202)
            elif counting.settings["refusal"] == "python":
                self.begin_stream()
                self.send_event(counting.response(message))
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.send_json(counting.response(message))

        def refusal(self) -> tuple[int, Any, int, str] | None:
            unknown, none = _REFUSALS[counting.settings["refusal"]]
            session = self.headers.get("Mcp-Session-Id")
            if session is None:
                return none
            return unknown if counting.has("broken") or session not in counting.sessions else None

        def open_session(self, message: dict[str, Any]) -> None:
            response = counting.response(message)
            session = os.urandom(8).hex()
            counting.sessions.add(session)
            self.send_json(response, session=session)

        def answer_modern(self, message: dict[str, Any]) -> None:
            if self.headers.get("MCP-Protocol-Version") != _MODERN:
                error = _error(message.get("id"), -32022, "Unsupported protocol version")
                error["error"]["data"] = {"supported": [_MODERN], "requested": "none"}
                self.send_json(error, 400)
            elif message["method"] == "subscriptions/listen":
                self.stream(message)
            else:
                response = counting.response(message)
                self.send_json(response, 404 if "error" in response else 200)

        def stream(self, listening: dict[str, Any] | None) -> None:
            self.begin_stream()
            if listening is not None:
                self.send_event(acknowledged(listening))
            stream: queue.Queue[dict[str, Any]] = queue.Queue()
            counting.streams[stream] = listening and listening["id"]
            counting.note("listened")
            while True:
                self.send_event(stream.get())

        def begin_stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

        def send_event(self, message: dict[str, Any]) -> None:
            event = f"event: message\r\ndata: {json.dumps(message)}\r\n\r\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))

        def send_json(self, message: dict[str, Any], status: int = 200, session: str = "") -> None:
            self.send_body(status, json.dumps(message).encode(), session)

        def send_body(self, status: int, body: bytes = b"", session: str = "") -> None:
            self.send_response(status)
            if session:
                self.send_header("Mcp-Session-Id", session)
            if body:
                self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main() -> None:
    """Serve what the folder says."""
    folder = Path(sys.argv[1])
    settings = json.loads((folder / "server.json").read_text("utf-8"))
    over_http = SseCountingServer if settings["refusal"] == "sse" else HttpCountingServer
    (over_http if settings["port"] else StdioCountingServer)(folder).run()


if __name__ == "__main__":
    main()
