"""Clients of the servers that are compared: each talks as the server's own API says, over one connection."""

import json
import secrets
from abc import ABC, abstractmethod
from typing import Any, Self

from ..caller import HANDSHAKE, MODERN, Caller, Connection


class Client(ABC):
    """One caller. ``begin`` starts a conversation; each ``turn`` returns the answer to one message of it."""

    def __init__(self) -> None:
        self._conversation = ""

    async def begin(self) -> None:
        """Start another conversation."""
        self._conversation = secrets.token_hex(16)

    @abstractmethod
    async def turn(self, text: str) -> str:
        """The text of the answer; raises RuntimeError if the call failed."""

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(self, *_: object) -> None: ...


class HttpClient(Client):
    """A client of an HTTP API, which asks for a stream of events if it is ``streamed``."""

    def __init__(self, url: str, *, streamed: bool = False) -> None:
        super().__init__()
        self._connection = Connection(url)
        self._streamed = streamed

    async def __aenter__(self) -> Self:
        await self._connection.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.__aexit__()

    async def _events(self, path: str, body: bytes, kind: str = "application/json") -> list[dict[str, Any]]:
        status, _, answer = await self._connection.exchange("POST", path, body, kind=kind)
        if status != 200:
            raise RuntimeError(f"HTTP {status}: {answer[:300]!r}")
        lines = (line.removeprefix(b"data:").strip() for line in answer.splitlines())
        return [json.loads(line) for line in lines if line.startswith(b"{")]


class TurnClient(HttpClient):
    """A client of ``servers/turn_app.py``."""

    async def turn(self, text: str) -> str:
        """One request with one answer."""
        answer = await self._connection.post("/turn", {"conversation": self._conversation, "text": text})
        return str(answer["text"])


class PallasRestClient(HttpClient):
    """A client of Pallas's REST API: the first answer names the thread."""

    async def begin(self) -> None:
        """The next message has no thread."""
        self._conversation = ""

    async def turn(self, text: str) -> str:
        """One request."""
        body: dict[str, Any] = {"message": text, "stream": self._streamed}
        if self._conversation:
            body["threadId"] = self._conversation
        path = "/api/v1/agents/talker/chat"
        if not self._streamed:
            answer = await self._connection.post(path, body)
            self._conversation = answer["threadId"]
            return str(answer["text"])
        events = await self._events(path, json.dumps(body).encode())
        if events[-1]["type"] != "final":
            raise RuntimeError(f"the run was not completed: {events[-1]}")
        self._conversation = events[-1]["threadId"]
        return "".join(event["delta"] for event in events if event["type"] == "text")


class PallasMcpClient(Client):
    """A client of Pallas over MCP 2026-07-28, where a conversation is a handle in the call."""

    era = MODERN

    def __init__(self, url: str) -> None:
        super().__init__()
        self._caller = Caller(f"{url}/mcp", self.era)

    async def __aenter__(self) -> Self:
        await self._caller.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._caller.end_session()
        await self._caller.__aexit__()

    async def turn(self, text: str) -> str:
        """One tool call."""
        return await self._caller.call("send_message", message=text, conversation_id=self._conversation)


class FastAgentClient(PallasMcpClient):
    """A client of fast-agent's own MCP server, which has no handle: each call stands alone."""

    async def turn(self, text: str) -> str:
        """One tool call."""
        return await self._caller.call("talker", message=text)


class FastAgentSessionClient(FastAgentClient):
    """The same with a handshake: a conversation is an MCP session."""

    era = HANDSHAKE

    async def begin(self) -> None:
        """End the session, and open another one over another connection."""
        await self.__aexit__()
        await self.__aenter__()
        await self._caller.open_session()


class AgnoClient(HttpClient):
    """A client of AgentOS, which streams the model only if it streams the answer."""

    async def turn(self, text: str) -> str:
        """One request."""
        fields = {"message": text, "stream": str(self._streamed).lower(), "session_id": self._conversation}
        mark = "8c1b7a54f0"
        parts = (
            f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in fields.items()
        )
        body = f"{''.join(parts)}--{mark}--\r\n".encode()
        path, kind = "/agents/talker/runs", f"multipart/form-data; boundary={mark}"
        if not self._streamed:
            return str((await self._connection.post(path, body, kind))["content"])
        events = await self._events(path, body, kind)
        done = [event["content"] for event in events if event.get("event") == "RunCompleted"]
        if not done:
            raise RuntimeError(f"the run was not completed: {events[-1:]}")
        return str(done[0])


class AdkClient(HttpClient):
    """A client of ADK's API server, where a session is made before the first turn; it streams as Agno."""

    async def begin(self) -> None:
        """The next message makes a session."""
        self._conversation = ""

    async def turn(self, text: str) -> str:
        """One request, and one before it in a new conversation."""
        if not self._conversation:
            made = await self._connection.post("/apps/talker/users/bench/sessions", {})
            self._conversation = made["id"]
        body = {
            "appName": "talker",
            "userId": "bench",
            "sessionId": self._conversation,
            "newMessage": {"role": "user", "parts": [{"text": text}]},
            "streaming": self._streamed,
        }
        if self._streamed:
            events = await self._events("/run_sse", json.dumps(body).encode())
        else:
            events = await self._connection.post("/run", body)
        for event in reversed(events):
            if "content" in event and not event.get("partial"):
                return "".join(part.get("text", "") for part in event["content"]["parts"])
        raise RuntimeError(f"the run was not completed: {events[-1:]}")
