"""The dialects of workers: what they share, and the simple one."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pallas.config.kinds import WorkerConfig
from pallas.model import Fault, FaultType, Image, Usage
from pallas.model.money import believed, nano_usd
from pallas.safe_text import one_line, sanitize

from .json_rpc_peer import METHOD_NOT_FOUND, JsonRpcError, JsonRpcPeer
from .turn_output import TurnOutput

_TYPES: Final = {-32004: FaultType.CONFIG, -32003: FaultType.AUTH, -32001: FaultType.TIMEOUT}
_MAX_WORDS: Final = 32
_MAX_ID: Final = 1_000


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """The answer of a turn: ``texts`` in order, ``stop_reason`` as in TurnResult."""

    texts: tuple[str, ...]
    stop_reason: str
    usage: Usage = field(default_factory=Usage)


class WorkerDialect(Protocol):
    """The protocol of one worker. All methods raise Fault, or JsonRpcError, which ``fault`` translates."""

    @property
    def vision(self) -> bool:
        """Whether it takes pictures."""
        ...

    @property
    def model(self) -> str:
        """The model that it names, sanitised; empty for none."""
        ...

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Its capabilities as it says, sanitised."""
        ...

    async def open(self) -> str:
        """Open a session and return its id."""
        ...

    async def begin(
        self, session: str, before: str, text: str, images: Sequence[Image]
    ) -> asyncio.Future[Any]:
        """Send a prompt, after the history ``before`` if it is not empty; return the future of its answer."""
        ...

    def parse_answer(self, result: Any, output: TurnOutput) -> WorkerAnswer:
        """Parse the answer to a prompt, and add it to ``output``."""
        ...

    def cancel(self, session: str) -> None:
        """Ask it to cancel the prompt; returns at once."""
        ...

    def close(self, session: str) -> None:
        """Close a session; returns at once."""
        ...

    def parse_update(self, params: Mapping[str, Any]) -> tuple[str, Any] | None:
        """Parse a ``session/update`` into its session and its update; None if it cannot be read."""
        ...

    def report(self, update: Any, output: TurnOutput) -> None:
        """Emit an update as events."""
        ...

    async def permit(self, params: Mapping[str, Any], output: TurnOutput | None) -> Any:
        """Return the answer to ``session/request_permission``; ``output`` is None if the turn is over."""
        ...

    def fault(self, refused: JsonRpcError, stage: str) -> Fault:
        """Return the Fault for its error."""
        ...


class SimpleDialect:
    """The dialect of mcp-agentic: requests for sessions and prompts with a text, without updates.

    ``handshake`` is its answer to the handshake.
    """

    vision = False

    def __init__(self, name: str, config: WorkerConfig, peer: JsonRpcPeer, handshake: Any = None) -> None:
        self._name = name
        self._config = config
        self._peer = peer
        handshake = handshake if isinstance(handshake, dict) else {}
        self.model = _word(handshake.get("model"), 120)
        words = handshake.get("capabilities")
        found = (_word(each, 64) for each in words[:_MAX_WORDS]) if isinstance(words, list) else ()
        self.capabilities = tuple(word for word in found if word)

    async def open(self) -> str:
        """Open a session and return its id. Raises Fault (PROTOCOL) if there is none."""
        params = {"agentId": self._config.agent_id or self._name}
        return session_id(
            self._name, await self._peer.call("session/new", params, self._config.request_timeout)
        )

    async def begin(
        self, session: str, before: str, text: str, images: Sequence[Image]
    ) -> asyncio.Future[Any]:
        """Send a prompt, which is text alone."""
        given = f"{before}\n\n{text}" if before else text
        return await self._peer.request("session/prompt", {"sessionId": session, "input": given})

    def parse_answer(self, result: Any, output: TurnOutput) -> WorkerAnswer:
        """Parse ``{text, stopReason, usage?}``. Raises Fault (PROTOCOL)."""
        text, reason = (
            (result.get("text"), result.get("stopReason")) if isinstance(result, dict) else (None, None)
        )
        if not isinstance(text, str) or not isinstance(reason, str):
            raise malformed(self._name)
        output.text(text)
        usage = result.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        cost = usage.get("costUsd")
        counted = Usage(
            _count(usage.get("inputTokens")),
            _count(usage.get("outputTokens")),
            believed(nano_usd(str(cost))) if cost is not None else None,
        )
        return WorkerAnswer(output.end(ok=True), stop_reason(reason), counted.without_steps)

    def cancel(self, session: str) -> None:
        """Send the request; its answer is ignored."""
        self._peer.notify("session/cancel", {"sessionId": session}, request=True)

    def close(self, session: str) -> None:
        """Send the request; its answer is ignored."""
        self._peer.notify("session/close", {"sessionId": session}, request=True)

    def parse_update(self, params: Mapping[str, Any]) -> tuple[str, Any] | None:
        """Do nothing: this dialect has no updates."""
        return None

    def report(self, update: Any, output: TurnOutput) -> None:
        """Do nothing: this dialect has no updates."""

    async def permit(self, params: Mapping[str, Any], output: TurnOutput | None) -> Any:
        """Refuse: this dialect has no permissions."""
        raise JsonRpcError(METHOD_NOT_FOUND, "Method not found")

    def fault(self, refused: JsonRpcError, stage: str) -> Fault:
        """Return a Fault of the type that it names or its code stands for, else UPSTREAM."""
        data = refused.data if isinstance(refused.data, dict) else {}
        kind = _TYPES.get(refused.code, FaultType.UPSTREAM)
        if data.get("type") in tuple(FaultType):  # it may be anything
            kind = FaultType(data["type"])
        retryable = data.get("retryable")
        return Fault(
            kind,
            f"{self._name}: the worker answered {stage} with an error: {refused.message}",
            retryable=retryable if isinstance(retryable, bool) else None,
            data={"stage": stage, "upstreamCode": refused.code},
        )


def session_id(name: str, result: Any) -> str:
    """Return the session id in an answer to ``session/new``. Raises Fault (PROTOCOL) if there is none."""
    found = result.get("sessionId") if isinstance(result, dict) else None
    if not isinstance(found, str) or not found:
        raise Fault(
            FaultType.PROTOCOL,
            "Invalid worker response: missing sessionId",
            data={"agent": name, "stage": "session/new"},
        )
    if len(found) > _MAX_ID:  # it is kept as long as its conversation
        raise Fault(
            FaultType.PROTOCOL,
            f"Invalid worker response: a sessionId of {len(found):,} characters, of at most {_MAX_ID:,}",
            data={"agent": name, "stage": "session/new"},
        )
    return found


def malformed(name: str) -> Fault:
    """Return the Fault (PROTOCOL) for an answer that cannot be read."""
    return Fault(
        FaultType.PROTOCOL,
        "Invalid worker response: malformed prompt result",
        data={"agent": name, "stage": "session/prompt"},
    )


def stop_reason(wire_reason: str) -> str:
    """Return a stop reason as other agents write it: ``max_tokens`` as ``maxTokens``."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), one_line(wire_reason, 40)) or "endTurn"


def _word(value: Any, limit: int) -> str:
    return one_line(sanitize(value, limit), limit) if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
