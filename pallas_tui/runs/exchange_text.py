"""An exchange of the wire record as text and as JSON. Nothing in here imports the screen."""

import json
from dataclasses import dataclass
from typing import Any, Final

from pallas.model import Exchange
from pallas.safe_text import sanitize, without_controls

from ..text import Line, clock, duration

_STRONG: Final = "bold"
_DIM: Final = "dim"
_KEY: Final = "$text-accent"


def pretty(body: str) -> str:
    """A body as indented JSON where it is some, else as it is.

    Unpacking it may bring out characters that stood there as ``\\u`` escapes: they are made safe again.
    """
    try:
        document = json.loads(body)
        return sanitize(json.dumps(document, indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return sanitize(body)


def state_of(exchange: Exchange) -> str:
    """Return how it ended, in a word or two: HTTP status, JSON-RPC error, tool error, or still waiting."""
    if exchange.seconds is None:
        return "waiting"
    if exchange.status is not None and exchange.status >= 400:
        return f"HTTP {exchange.status}"
    if not exchange.response:
        return f"HTTP {exchange.status}" if exchange.status is not None else "no answer"
    if '"error"' in exchange.response[:400] and '"result"' not in exchange.response[:400]:
        return "error"
    if '"isError":true' in exchange.response.replace(" ", ""):
        return "tool error"
    return f"HTTP {exchange.status}" if exchange.status is not None else "ok"


def went_wrong(exchange: Exchange) -> bool:
    """Return whether it failed."""
    return state_of(exchange) in ("error", "tool error", "no answer") or (exchange.status or 0) >= 400


def title_of(exchange: Exchange) -> str:
    """Return caller, receiver and method in one line."""
    way = "from" if exchange.side == "inbound" else "to"
    return f"{exchange.method or 'request'} {way} {exchange.peer}"


@dataclass(frozen=True, slots=True)
class CallExchange:
    """An exchange with the duration of what it belongs to: step ``number`` of its run, or with 0 the run.

    What belongs to neither took as long as the exchange.
    """

    exchange: Exchange
    seconds: float | None
    number: int = 0

    @property
    def title(self) -> str:
        """The number of the step, and caller, receiver and method, in one line."""
        return (f"{self.number}. " if self.number else "") + title_of(self.exchange)


def lines_of(call: CallExchange) -> list[Line]:
    """Return all of it, line by line; a line may be wider than the screen."""
    exchange = call.exchange
    is_over = exchange.seconds is not None and call.seconds is not None
    took = f", {duration(call.seconds)}" if is_over and call.seconds is not None else ""
    lines: list[Line] = [((f"{clock(exchange.at)} {call.title}: {state_of(exchange)}{took}", _STRONG),)]
    if exchange.seconds is not None and (wire := duration(exchange.seconds)) not in took:
        lines.append((("on the wire ", _DIM), (wire, "")))
    if exchange.span_id:
        lines.append((("span ", _DIM), (exchange.span_id, "")))
    if exchange.cut:
        lines.append((("A body was longer than what is kept; it ends where it was cut.", "$text-warning"),))
    for name, headers, body in _halves(exchange):
        lines += [(), ((name, _STRONG),)]
        lines += [((f"{key}: ", _DIM), (value, "")) for key, value in headers]
        if headers and body:
            lines.append(())
        lines += [json_line(line) for line in pretty(body).split("\n")] if body else []
        if not headers and not body:
            lines.append((("nothing yet" if exchange.seconds is None else "nothing", _DIM),))
    return lines


def as_text(call: CallExchange) -> str:
    """Return all of it as text to paste."""
    return "\n".join("".join(text for text, _ in line) for line in lines_of(call))


def as_json(exchange: Exchange) -> str:
    """Return all of it as one JSON document: bodies that are JSON as JSON, others as text."""
    document: dict[str, Any] = {
        "run": exchange.run_id,
        "at": exchange.at,
        "side": exchange.side,
        "peer": exchange.peer,
        "method": exchange.method,
        "status": exchange.status,
        "seconds": exchange.seconds,
        "span": exchange.span_id,
        "cut": exchange.cut,
    }
    for name, headers, body in _halves(exchange):
        document[name.lower()] = {"headers": [list(pair) for pair in headers], "body": parsed(body)}
    return without_controls(json.dumps(document, indent=2, ensure_ascii=False))


def _halves(exchange: Exchange) -> tuple[tuple[str, tuple[tuple[str, str], ...], str], ...]:
    return (
        ("Request", exchange.request_headers, exchange.request),
        ("Response", exchange.response_headers, exchange.response),
    )


def parsed(body: str) -> Any:
    """Return a body as the JSON that it is, or as text."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body


def json_line(line: str) -> Line:
    """Return a line of indented JSON with the key in another colour than its value."""
    blank = len(line) - len(line.lstrip())
    head, colon, rest = line.partition('": ')
    if not colon or not head.lstrip().startswith('"'):
        return ((line, ""),)
    return ((line[:blank], ""), (head[blank:] + '":', _KEY), (" " + rest, ""))
