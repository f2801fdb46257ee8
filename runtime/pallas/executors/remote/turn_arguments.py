"""Converts a turn to the arguments of the other side's tool."""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pallas.executors.base import ExecutorTurn
from pallas.model import Fault, FaultType, Image, Message
from pallas.model.spend_limits import ANY, SpendLimits
from pallas.telemetry.trace_context import BAGGAGE, MAX_BAGGAGE, current_run, outgoing

from .call_method import CallMethod

META: Final = "local.pallas"
NEW: Final = "new"

MAX_REQUEST: Final = 4 * 1024 * 1024
"""Bytes of one request that MCP servers take."""
MAX_TOLD: Final = 400_000
"""The limit in characters of history that is sent as text, if there is no argument for it."""
MAX_HOPS: Final = 16
"""The limit of fleets that one question may pass."""

_ENVELOPE: Final = 8 * 1024
_ROW: Final = 80
_HOPS: Final = "pallas-hops"

_OPENING: Final = "[Earlier in this conversation, oldest first. It is context: answer only what follows it.]"
_CLOSING: Final = "[End of the earlier messages. The new message:]"


class CallArguments(NamedTuple):
    """The arguments and metadata of a call."""

    arguments: dict[str, Any]
    meta: dict[str, Any]


def call_arguments(
    way: CallMethod, turn: ExecutorTurn, handle: str, *, knows: bool, limits: SpendLimits = ANY
) -> CallArguments:
    """Return the call for a turn; ``handle`` is the other side's current one, empty for none.

    Another fleet of Pallas gets ``limits``, which are what remains of those of the run.
    Unless ``knows`` is set, the newest messages of the history that fit are sent as well. Raises Fault
    (CONFIG) for input that the other side does not support.
    """
    text = turn.text
    arguments: dict[str, Any] = {}
    if turn.images:
        if not way.images:
            raise Fault(
                FaultType.CONFIG,
                f"{turn.agent} takes no images: its tool {way.tool} has no argument for them; send the "
                "message without",
            )
        arguments[way.images] = [_picture(image) for image in turn.images]
    if turn.history and not knows:
        if way.history:
            room = MAX_REQUEST - _ENVELOPE - len(json.dumps(text))
            arguments[way.history] = _rows(turn.history, room - sum(map(_weight, turn.images)))
        else:
            text = _with_block(turn.history, text)
    arguments[way.argument] = text
    if way.conversation and handle:
        arguments[way.conversation] = handle
    if way.stream and turn.stream_text:
        arguments[way.stream] = True
    meta: dict[str, Any] = _traced(turn.agent)
    if limits and way.params == "meta":
        meta[f"{META}/limits"] = limits.to_json()
    if turn.params and way.params == "meta":
        meta[f"{META}/params"] = turn.params.to_json()
    elif way.params == "arguments":
        arguments = {**turn.params.to_json(), **arguments}
    _check_size(turn, arguments)
    return CallArguments(arguments, meta)


def _traced(agent: str) -> dict[str, Any]:
    """Return the trace of this run, one hop further. Raises Fault (CONFIG) if it went in a circle."""
    meta: dict[str, Any] = dict(outgoing())
    run = current_run()
    if run is None:
        return meta
    rows = [each.strip() for each in run.context.baggage.split(",") if each.strip()]
    hops = 0
    for row in rows:
        name, _, value = row.partition("=")
        if name.strip() == _HOPS and value.strip().isdigit():
            hops = min(int(value.strip()[:6]), MAX_HOPS)
    if hops >= MAX_HOPS:
        raise Fault(
            FaultType.CONFIG,
            f"{agent}: this question went from fleet to fleet {hops} times; they ask each other in a circle; "
            "remove one of the remote agents from it",
        )
    rows = [row for row in rows if row.partition("=")[0].strip() != _HOPS]
    baggage = ",".join((f"{_HOPS}={hops + 1}", *rows))
    meta[BAGGAGE] = baggage if len(baggage) <= MAX_BAGGAGE else f"{_HOPS}={hops + 1}"
    return meta


def _rows(history: Sequence[Message], room: int) -> list[dict[str, Any]]:
    """Return the history as rows for another Pallas; tool results are left out."""
    rows: list[dict[str, Any]] = []
    for message in reversed(history):
        if message.role == "tool" or not (message.text or message.images):
            continue
        room -= len(json.dumps(message.text)) + sum(map(_weight, message.images)) + _ROW
        if room < 0:
            break
        row: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.images:
            row["images"] = [_picture(image) for image in message.images]
        rows.append(row)
    return rows[::-1]


def _with_block(history: Sequence[Message], text: str) -> str:
    """Return the question after a clearly marked block with the history."""
    lines: list[str] = []
    room = MAX_TOLD
    for message in reversed(history):
        if message.role == "tool" or not message.text:
            continue
        line = f"{message.role}: {message.text}"
        room -= len(line)
        if room < 0:
            lines.append("(Earlier messages are left out: they are too long.)")
            break
        lines.append(line)
    if not lines:
        return text
    return "\n\n".join((_OPENING, *reversed(lines), _CLOSING, text))


def _check_size(turn: ExecutorTurn, arguments: dict[str, Any]) -> None:
    size = len(json.dumps(arguments, ensure_ascii=False).encode("utf-8", "replace")) + _ENVELOPE
    if size > MAX_REQUEST:
        raise Fault(
            FaultType.UPSTREAM,
            f"the message has {size} bytes with its images; {turn.agent} is elsewhere, where one request may "
            f"have {MAX_REQUEST}: send fewer or smaller ones",
            data={"size": size, "limit": MAX_REQUEST},
        )


def _picture(image: Image) -> dict[str, str]:
    return {"data": image.data, "mime_type": image.mime_type}


def _weight(image: Image) -> int:
    return len(image.data) + _ROW
