"""One conversation with one agent over MCP, as any MCP client has it."""

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Final, Literal, Protocol

from pallas.model import Fault, FaultType, Image, ToolDetail
from pallas.safe_text import one_line, sanitize

from .mcp_faults import fault_from
from .mcp_link import CONNECT_TIMEOUT, READ_TIMEOUT, Bearer, Era, McpLink
from .pictures.images import ChatPicture, received

OnProgress = Callable[[str], None]

ANSWER_LIMIT: Final = 1_000_000
"""Characters of an answer that are kept."""
REQUEST_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of one request that an agent's server takes (beyond, it answers a bare 413)."""

_ENVELOPE: Final = 8 * 1024
_ROW: Final = 80
_META: Final = "local.pallas/"
_MAX_MISSING: Final = 10

TOOL: Final = "send_message"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReply:
    """The answer. ``fault`` is set when the agent answered with an error; ``text`` is then empty.

    All text is sanitised. ``seconds`` is wall time as the caller felt it. ``steps`` and ``tools`` are None
    where the agent does not report them; ``stop_reason`` is empty then. ``images`` are bounded, their kind is
    that of their content. Tokens are those of the agent's own model. ``thread`` is the durable thread of the
    answer, empty where none is reported. ``note`` is something the user should know about how the message was
    sent or answered, else empty.
    """

    text: str
    seconds: float
    fault: Fault | None = None
    steps: int | None = None
    tools: int | None = None
    stop_reason: str = ""
    images: tuple[ChatPicture, ...] = ()
    tokens_in: int | None = None
    tokens_out: int | None = None
    run_id: str = ""
    thread: str = ""
    note: str = ""


class EarlierMessage(Protocol):
    """An earlier message of the history."""

    @property
    def role(self) -> Literal["user", "assistant"]:
        """The author of the message."""
        ...

    @property
    def text(self) -> str:
        """The text of the message."""
        ...

    @property
    def images(self) -> tuple[Image, ...]:
        """The images of the message."""
        ...


class ChatClient:
    """Talks to the agent at ``url`` within the conversation ``conversation``.

    The first ``send`` opens the connection, in a task of its own, and reopens it when it was lost. ``era``
    chooses the protocol, ``bearer`` returns the token to send along (``McpLink``). MCP is not imported before
    the first ``send``.
    """

    def __init__(
        self,
        url: str,
        conversation: str,
        *,
        era: Era = "auto",
        bearer: Bearer | None = None,
        plain_allowed: bool = False,
        connect_timeout: float = CONNECT_TIMEOUT,
        read_timeout: float = READ_TIMEOUT,
    ) -> None:
        self.url = url
        self.conversation = conversation
        self.era: Era = era
        self._link = McpLink(
            url,
            era=era,
            bearer=bearer,
            plain_allowed=plain_allowed,
            connect_timeout=connect_timeout,
            read_timeout=read_timeout,
        )

    @property
    def protocol(self) -> str:
        """The version of the protocol in use, empty while nothing is connected."""
        return self._link.protocol

    async def send(
        self,
        text: str,
        images: Sequence[Image] = (),
        on_progress: OnProgress | None = None,
        *,
        history: Sequence[EarlierMessage] = (),
        traceparent: str = "",
        stream: bool = True,
        params: Mapping[str, Any] | None = None,
    ) -> AgentReply:
        """Ask the agent and wait for its answer; cancelling the caller cancels the run on the server.

        ``on_progress`` gets each progress message, sanitised, on this loop. ``history`` are the earlier
        messages that the agent does not have; the oldest are left out where they are too much for one
        request. ``traceparent`` and ``params``, the parameters of the model for this call, go into the call's
        metadata. Raises Fault when the agent could not be asked: TRANSPORT, TIMEOUT, PROTOCOL, CONFIG for a
        message that is too big.
        """
        _check_size(text, images)
        offered = await self._link.arguments_of(TOOL)
        arguments, note = _arguments(text, images, history, offered)
        arguments["conversation_id"] = self.conversation
        arguments["stream_text"] = stream
        if offered is not None:
            arguments = {name: value for name, value in arguments.items() if name in offered}
            if images and "images" not in offered:
                raise Fault(FaultType.CONFIG, "This agent's server takes no images: take them away.")
        meta: dict[str, Any] = {"traceparent": traceparent} if traceparent else {}
        if params:
            meta[f"{_META}params"] = dict(params)
        started = perf_counter()
        result = await self._call(arguments, on_progress, meta or None)
        seconds = perf_counter() - started
        pictures = list(_pictures(result))
        # A library reads their headers: never on the loop that draws.
        received_images = await asyncio.to_thread(received, pictures) if pictures else ()
        reply = _reply(result, seconds, received_images)
        return replace(reply, note=" ".join(part for part in (note, reply.note) if part))

    async def tools(self) -> tuple[ToolDetail, ...]:
        """Return the tools of the agent's own endpoint. Raises Fault as ``send`` does."""
        return await self._link.tools()

    async def close(self) -> None:
        """Close the connection; safe to call twice, done within 4 s."""
        await self._link.close()

    async def _call(
        self, arguments: dict[str, Any], on_progress: OnProgress | None, meta: dict[str, Any] | None
    ) -> Any:
        # The numbers say nothing that the messages do not: they are not parsed.
        async def hear(progress: float, total: float | None, message: str | None) -> None:
            if on_progress is not None and message:
                on_progress(sanitize(message, ANSWER_LIMIT))

        return await self._link.call(TOOL, arguments, hear, meta=meta)


def _pictures(result: Any) -> Iterator[tuple[str, str]]:
    """Iterate over the picture blocks, as base64 and MIME type, including pictures embedded as a resource."""
    for block in result.content:
        if getattr(block, "type", "") == "image":
            yield str(block.data), str(block.mime_type)
        elif hasattr(resource := getattr(block, "resource", None), "blob"):
            kind = str(getattr(resource, "mime_type", None) or "")
            if kind.startswith("image/"):
                yield str(getattr(resource, "blob", "")), kind


def _reply(result: Any, seconds: float, images: tuple[ChatPicture, ...] = ()) -> AgentReply:
    texts = [str(block.text) for block in result.content if getattr(block, "type", "") == "text"]
    text = sanitize("\n\n".join(texts), ANSWER_LIMIT)
    if result.is_error:
        return AgentReply(text="", seconds=seconds, fault=fault_from("\n".join(texts)))
    if not texts and not images and result.structured_content is not None:
        text = sanitize(json.dumps(result.structured_content, indent=2, ensure_ascii=False), ANSWER_LIMIT)
    meta: dict[str, Any] = dict(result.meta or {})
    usage = meta.get(f"{_META}usage")
    usage = usage if isinstance(usage, dict) else {}
    return AgentReply(
        text=text,
        seconds=seconds,
        steps=_number(meta.get(f"{_META}steps")),
        tools=_number(meta.get(f"{_META}tools")),
        stop_reason=one_line(str(meta.get(f"{_META}stopReason", "")), 60),
        images=images,
        tokens_in=_number(usage.get("inputTokens")),
        tokens_out=_number(usage.get("outputTokens")),
        run_id=one_line(str(meta.get(f"{_META}runId", "")), 60),
        thread=one_line(str(meta.get(f"{_META}threadId", "")), 200),
        note=_without(meta.get(f"{_META}missingServers")),
    )


def _without(missing: object) -> str:
    """Name the servers the agent ran without, in a sentence; empty where it had all of them."""
    if not isinstance(missing, dict) or not missing:
        return ""
    named = [
        f"{one_line(str(name), 80)} ({one_line(str(why), 100)})"
        for name, why in list(missing.items())[:_MAX_MISSING]
    ]
    return f"Answered without {', '.join(named)}."


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _arguments(
    text: str, images: Sequence[Image], history: Sequence[EarlierMessage], offered: Collection[str] | None
) -> tuple[dict[str, Any], str]:
    """Return the arguments with the history, and a note where it is not sent whole, or not as such."""
    arguments: dict[str, Any] = {"message": text}
    if images:
        arguments["images"] = [_picture(image) for image in images]
    if not history:
        return arguments, ""
    # With an answer in between, the earlier question fits into one request.
    room = REQUEST_LIMIT - _size(text, images) - _ENVELOPE
    sent: list[EarlierMessage] = []
    for earlier in reversed(history):
        room -= _size(earlier.text, earlier.images) + _ROW
        if room < 0:
            break
        sent.insert(0, earlier)
    note = (
        ""
        if len(sent) == len(history)
        else (
            f"The agent received the newest {len(sent)} of the {len(history)} messages before this one: more "
            "do not fit into one request."
        )
    )
    if offered is None or "history" in offered:
        arguments["history"] = [
            {
                "role": earlier.role,
                "content": earlier.text,
                **({"images": [_picture(image) for image in earlier.images]} if earlier.images else {}),
            }
            for earlier in sent
        ]
    elif sent:
        earlier_text = "\n\n".join(f"{earlier.role}: {earlier.text}" for earlier in sent)
        arguments["message"] = f"What was said before:\n\n{earlier_text}\n\nuser: {text}"
        note = f"{note} This agent's server takes no history: it was put before the message, as text.".strip()
    return arguments, note


def _picture(image: Image) -> dict[str, str]:
    return {"data": image.data, "mime_type": image.mime_type}


def _size(text: str, images: Sequence[Image]) -> int:
    return len(json.dumps(text)) + sum(len(image.data) + 80 for image in images)


def _check_size(text: str, images: Sequence[Image]) -> None:
    size = _size(text, images) + _ENVELOPE
    if size > REQUEST_LIMIT:
        raise Fault(
            FaultType.CONFIG,
            f"The message has {size / 1024 / 1024:.1f} MiB with its images; an agent takes "
            f"{REQUEST_LIMIT // 1024 // 1024} MiB. Send fewer or smaller ones.",
        )
