"""One conversation with one agent over MCP, held as any other client would hold it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

from pallas.model import Fault, FaultType, Image
from pallas.text import one_line, sanitize

from .link import CONNECT_TIMEOUT, READ_TIMEOUT, Era, Link
from .mcp_faults import fault_from

OnProgress = Callable[[str], None]

ANSWER_LIMIT: Final = 1_000_000
"""Characters of an answer that are kept."""
REQUEST_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of one request that an agent's server takes (it answers a bare 413 beyond)."""

_ENVELOPE: Final = 8 * 1024
_META: Final = "local.pallas/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back. ``fault`` is set when the agent answered with an error; ``text`` is then empty.

    All text is sanitised. ``seconds`` is wall time as the caller felt it. ``steps`` and ``tools`` are
    None where the agent does not tell; ``stop_reason`` is empty then.
    """

    text: str
    seconds: float
    fault: Fault | None = None
    steps: int | None = None
    tools: int | None = None
    stop_reason: str = ""


class AgentClient:
    """Talks to the agent at ``url`` within the conversation ``conversation``.

    The connection is opened by the first ``send``, in a task of its own, and opened again when it was
    lost. ``era`` chooses the protocol. Nothing of MCP is imported before the first ``send``.
    """

    def __init__(
        self,
        url: str,
        conversation: str,
        *,
        era: Era = "auto",
        connect_timeout: float = CONNECT_TIMEOUT,
        read_timeout: float = READ_TIMEOUT,
    ) -> None:
        self.url = url
        self.conversation = conversation
        self.era: Era = era
        self._link = Link(url, era=era, connect_timeout=connect_timeout, read_timeout=read_timeout)

    async def send(
        self, text: str, images: Sequence[Image] = (), on_progress: OnProgress | None = None
    ) -> Reply:
        """Ask the agent and wait for its answer; cancelling the caller cancels the run on the server.

        ``on_progress`` gets each progress message, sanitised, on this loop. Raises Fault when the agent
        could not be asked: TRANSPORT, TIMEOUT, PROTOCOL, CONFIG for a message that is too big.
        """
        arguments: dict[str, Any] = {
            "message": text,
            "conversation_id": self.conversation,
            "stream_text": True,
        }
        if images:
            arguments["images"] = [{"data": image.data, "mime_type": image.mime_type} for image in images]
        _check_size(text, images)
        started = perf_counter()
        result = await self._call(arguments, on_progress)
        return _reply(result, perf_counter() - started)

    async def close(self) -> None:
        """End the connection; safe to call twice, done within 4 s."""
        await self._link.close()

    async def _call(self, arguments: dict[str, Any], on_progress: OnProgress | None) -> Any:
        # The numbers say nothing that the messages do not: nobody parses them.
        async def hear(progress: float, total: float | None, message: str | None) -> None:
            if on_progress is not None and message:
                on_progress(sanitize(message, ANSWER_LIMIT))

        return await self._link.call("send_message", arguments, hear)


def _reply(result: Any, seconds: float) -> Reply:
    texts = [str(block.text) for block in result.content if getattr(block, "type", "") == "text"]
    text = sanitize("\n\n".join(texts), ANSWER_LIMIT)
    if result.is_error:
        return Reply(text="", seconds=seconds, fault=fault_from("\n".join(texts)))
    if not texts and result.structured_content is not None:
        text = sanitize(json.dumps(result.structured_content, indent=2, ensure_ascii=False), ANSWER_LIMIT)
    meta: dict[str, Any] = dict(result.meta or {})
    steps, tools = meta.get(f"{_META}steps"), meta.get(f"{_META}tools")
    return Reply(
        text=text,
        seconds=seconds,
        steps=steps if isinstance(steps, int) else None,
        tools=tools if isinstance(tools, int) else None,
        stop_reason=one_line(str(meta.get(f"{_META}stopReason", "")), 60),
    )


def _check_size(text: str, images: Sequence[Image]) -> None:
    size = len(json.dumps(text)) + sum(len(image.data) + 80 for image in images) + _ENVELOPE
    if size > REQUEST_LIMIT:
        raise Fault(
            FaultType.CONFIG,
            f"The message has {size / 1024 / 1024:.1f} MiB with its images; an agent takes "
            f"{REQUEST_LIMIT // 1024 // 1024} MiB. Send fewer or smaller ones.",
        )
