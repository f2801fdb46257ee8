"""One conversation with one agent over MCP, as any MCP client has it."""

import asyncio
import json
import logging
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic, perf_counter
from typing import Any, Final, Literal, Protocol

from pallas.model import NO_COST, Cost, Fault, FaultType, Image, ToolDetail
from pallas.model.money import cost_in
from pallas.safe_text import one_line, without_controls

from .mcp_faults import fault_from
from .mcp_link import CONNECT_TIMEOUT, READ_TIMEOUT, Bearer, Era, McpLink
from .pictures.images import ChatPicture, received

OnProgress = Callable[[str], None]

ANSWER_LIMIT: Final = 1_000_000
"""Characters of an answer that are kept."""
REQUEST_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of one request that an agent's server takes (beyond, it answers a bare 413)."""

RETURN_S: Final = 120.0
"""Seconds after the loss of the connection within which the run is looked for."""
_BACKOFF: Final = (0.2, 2.0)
"""Seconds between two tries to find it: the first pause and the longest."""
_SETTLED_S: Final = 10.0
"""Seconds that a call has to last until a loss after it counts as another one."""
_CANCEL_S: Final = 5.0
"""Seconds that a server has to take in that a run with a key is cancelled, each time it is told."""
_CANCEL_FOR_S: Final = RETURN_S
"""Seconds for which it is told again while it is away."""
_END_S: Final = 1.5
"""Seconds that ``close`` waits for that."""

_ENVELOPE: Final = 8 * 1024
_ROW: Final = 80
_META: Final = "local.pallas/"
_MAX_MISSING: Final = 10

TOOL: Final = "send_message"
KEY_META: Final = f"{_META}idempotency"
CANCEL_META: Final = f"{_META}cancel"
LOOKED_FOR: Final = "looked_for"
"""Is in the data of the Fault of a run that was not found again."""
LOOKING: Final = "connection lost: looking for the run again"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReply:
    """The answer. ``fault`` is set when the agent answered with an error; ``text`` is then empty.

    All text is sanitised. ``seconds`` is wall time as the caller felt it. ``steps`` and ``tools`` are None
    where the agent does not report them; ``stop_reason`` is empty then. ``images`` are bounded, their kind is
    that of their content. Tokens are those of the agent's own model, ``cost`` is that of the run and
    those below it. ``thread`` is the durable thread of the
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
    cost: Cost = NO_COST
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
        # Runs that the server is told to cancel.
        self._ending: set[asyncio.Task[None]] = set()
        self._asked: set[str] = set()
        """The keys of runs that are waited for."""
        self._is_closed = False

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
        branch_of: str = "",
        traceparent: str = "",
        stream: bool = True,
        params: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> AgentReply:
        """Ask the agent and wait for its answer; cancelling the caller cancels the run on the server.

        A server that promises to keep idempotency keys gets ``key``, which no other question has had. If the
        connection to it is lost, the run is looked for at the same address for ``RETURN_S`` seconds, and its
        answer is returned.

        ``on_progress`` gets each progress message, sanitised, on this loop. ``history`` are the earlier
        messages that the agent does not have; the oldest are left out where they are too much for one
        request. ``branch_of`` is the conversation that they are of. ``traceparent`` and ``params``, the
        parameters of the model for this call, go into the call's metadata. Raises Fault when the agent could
        not be asked: TRANSPORT, TIMEOUT, PROTOCOL, CONFIG for a message that is too big.
        """
        _check_size(text, images)
        offered = await self._link.arguments_of(TOOL)
        arguments, note = _arguments(text, images, history, offered)
        arguments["conversation_id"] = self.conversation
        arguments["stream_text"] = stream
        if offered is not None:
            arguments = {name: value for name, value in arguments.items() if name in offered}
            if images and "images" not in offered:
                raise Fault(FaultType.CONFIG, "This agent's server takes no images: remove them.")
        meta: dict[str, Any] = {"traceparent": traceparent} if traceparent else {}
        if params:
            meta[f"{_META}params"] = dict(params)
        if branch_of:
            meta[f"{_META}branchOf"] = branch_of
        started = perf_counter()
        found = ""
        if key and await self._link.promises(TOOL, KEY_META):
            self._asked.add(key)
            try:
                result, found = await self._found_again(arguments, on_progress, meta | {KEY_META: key}, key)
            finally:
                self._asked.discard(key)
        else:
            result = await self._call(arguments, on_progress, meta or None)
        seconds = perf_counter() - started
        pictures = list(_pictures(result))
        # A library reads their headers: never on the loop that draws.
        received_images = await asyncio.to_thread(received, pictures) if pictures else ()
        reply = _reply(result, seconds, received_images)
        return replace(reply, note=" ".join(part for part in (note, found, reply.note) if part))

    async def tools(self) -> tuple[ToolDetail, ...]:
        """Return the tools of the agent's own endpoint. Raises Fault as ``send`` does."""
        return await self._link.tools()

    async def close(self) -> None:
        """Cancel the runs that are waited for, and close the connection, within 6 s; may be called twice."""
        for key in tuple(self._asked):
            self._give_up(key)
        self._is_closed = True
        if self._ending:
            await asyncio.wait(self._ending, timeout=_END_S)
        for task in self._ending:
            task.cancel()
        await self._link.close()

    async def _found_again(
        self, arguments: dict[str, Any], on_progress: OnProgress | None, meta: dict[str, Any], key: str
    ) -> tuple[Any, str]:
        """Return the result of the run of that key, and what to tell of a loss in between. Raises Fault."""
        lost_at, pause = 0.0, _BACKOFF[0]
        while True:
            asked_at = monotonic()
            try:
                result = await self._call(arguments, on_progress, meta)
                fault = _left_behind(result, is_again=lost_at > 0)
            except asyncio.CancelledError:
                self._give_up(key)
                raise
            except Fault as error:
                fault = error
                if error.type not in (_WHEN_AWAY if lost_at else _WHEN_LOST):
                    if error.type is FaultType.TIMEOUT:
                        self._give_up(key)
                    raise
            if fault is None:
                return result, _FOUND if lost_at else ""
            if self._is_closed:
                raise fault
            now = monotonic()
            if not lost_at or now - asked_at > _SETTLED_S:
                lost_at, pause = now, _BACKOFF[0]
            if now - lost_at > RETURN_S:
                raise Fault(fault.type, f"{fault.message} {_NOT_FOUND}", data={LOOKED_FOR: True})
            if on_progress is not None:
                on_progress(LOOKING)
            try:
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            except asyncio.CancelledError:
                self._give_up(key)
                raise
            pause = min(pause * 2, _BACKOFF[1])

    def _give_up(self, key: str) -> None:
        """Have the server cancel the run of that key: without a caller it would go on. Returns at once."""
        if self._is_closed:
            return
        self._asked.discard(key)
        task = asyncio.create_task(self._cancel(key), name="cancel a run")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _cancel(self, key: str) -> None:
        """Tell the server, again and again while it is away, that the run of that key is cancelled."""
        until, pause = monotonic() + _CANCEL_FOR_S, _BACKOFF[0]
        while True:
            try:
                async with asyncio.timeout(_CANCEL_S):
                    result = await self._link.call(
                        TOOL, {"message": ""}, meta={KEY_META: key, CANCEL_META: True}
                    )
                error: Fault | TimeoutError | None = _left_behind(result, is_again=True)
            except (Fault, TimeoutError) as failed:
                error = failed
            if error is None:
                return
            is_away = not isinstance(error, Fault) or error.type in _WHEN_AWAY
            if not is_away or monotonic() > until:
                log.warning("a run at %s is not cancelled, and may continue: %s", self.url, error)
                return
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 2, _BACKOFF[1])

    async def _call(
        self, arguments: dict[str, Any], on_progress: OnProgress | None, meta: dict[str, Any] | None
    ) -> Any:
        # The numbers say nothing that the messages do not: they are not parsed.
        async def hear(progress: float, total: float | None, message: str | None) -> None:
            if on_progress is not None and message:
                on_progress(without_controls(message, ANSWER_LIMIT))

        return await self._link.call(TOOL, arguments, hear, meta=meta)


_WHEN_LOST: Final = frozenset({FaultType.TRANSPORT})
_WHEN_AWAY: Final = frozenset({FaultType.TRANSPORT, FaultType.PROTOCOL, FaultType.TIMEOUT})
"""Faults of an address at which nothing answers as it should, such as a proxy without a server behind it."""
_FOUND: Final = "The connection was lost on the way; the run was found again, and this is its answer."
_NOT_FOUND: Final = (
    f"The workbench looked for the run for {RETURN_S:.0f} s. If another replica or its fleet "
    f"continues it, the "
    "answer will be in its thread, and asking again joins it."
)


def _left_behind(result: Any, *, is_again: bool) -> Fault | None:
    """Return the Fault of a server that left the run to another one, or is not ready to look for it."""
    if not result.is_error:
        return None
    fault = fault_from("\n".join(str(block.text) for block in result.content if hasattr(block, "text")))
    if fault.type is not FaultType.TRANSPORT:
        return None
    return fault if is_again or fault.data.get("reason") == "handed_over" else None


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
    text = without_controls("\n\n".join(texts), ANSWER_LIMIT)
    if result.is_error:
        return AgentReply(text="", seconds=seconds, fault=fault_from("\n".join(texts)))
    if not texts and not images and result.structured_content is not None:
        text = without_controls(
            json.dumps(result.structured_content, indent=2, ensure_ascii=False), ANSWER_LIMIT
        )
    meta: dict[str, Any] = dict(result.meta or {})
    usage = meta.get(f"{_META}usage")
    usage = usage if isinstance(usage, dict) else {}
    cost = meta.get(f"{_META}cost")
    return AgentReply(
        text=text,
        seconds=seconds,
        steps=_number(meta.get(f"{_META}steps")),
        tools=_number(meta.get(f"{_META}tools")),
        stop_reason=one_line(str(meta.get(f"{_META}stopReason", "")), 60),
        images=images,
        tokens_in=_number(usage.get("inputTokens")),
        tokens_out=_number(usage.get("outputTokens")),
        cost=cost_in(cost, tree=True) if isinstance(cost, dict) else NO_COST,
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
