"""How a hop looks: as a line of the table, and in full."""

from typing import Final

from rich.cells import cell_len

from ...runs.traces import TraceLine, short
from ...text import Glyphs, Line, clock, count, cropped, fit, right, since
from ..tones import DIM

_SOURCES: Final = {"caller": "caller", "forwarded": "forward", "configured": "config", "none": "none"}
_SHORT: Final = {"source": "src", "caller": "call", "forward": "fwd", "config": "conf"}
_RUN_WIDTH: Final = 6
_KEY_WIDTH: Final = 8
_SOURCE_WIDTH: Final = 7
_EXPIRY_WIDTH: Final = 9
_ANSWER_WIDTH: Final = 9
_METHOD_WIDTH: Final = 14
_WIDE: Final = 110
_NARROW: Final = 72
_TINY: Final = 56


def header(width: int) -> Line:
    """The names of the columns."""
    return tuple(
        (text, DIM)
        for text, _ in _columns(
            width, "time", "run", "from > to", "source", "key", "for", "expires", "method", "answer"
        )
    )


def trace_line(line: TraceLine, width: int, now: float, glyphs: Glyphs) -> Line:
    """One hop; the reason why it is odd stands at its end where there is room, else in the details."""
    again = f" x{line.times}" if line.times > 1 else ""
    who = f"{'  ' * line.depth}{line.sender} {glyphs.outbound} {line.to}{again}"
    left, expired = expiry(line.expires_at, now)
    key = short(line.fingerprint) or "-"
    columns = _columns(
        width,
        clock(line.at),
        line.run_id[:_RUN_WIDTH],
        who,
        _SOURCES[line.source],
        key,
        ", ".join(line.audience),
        left,
        line.method,
        line.answer,
        glyphs,
    )
    styles = {
        "run": DIM,
        "time": DIM,
        "who": "bold" if line.outcome else "",
        "source": DIM if line.source == "none" else "",
        "key": "",
        "for": DIM,
        "left": "$text-warning" if expired else DIM,
        "method": DIM,
        "answer": _answer_style(line),
    }
    parts = [(text, styles.get(name, "")) for text, name in columns]
    mark = (glyphs.degraded, "bold $text-warning") if line.odd else (" ", "")
    return cropped((mark, *parts), width)


def expiry(expires_at: float | None, now: float) -> tuple[str, bool]:
    """How long a key still holds, in a steady width, and whether that is over."""
    if expires_at is None:
        return "", False
    left = int(expires_at - now)
    if left < 0:
        return "expired", True
    if left < 100 * 3600:
        return f"{left // 3600:02}:{left // 60 % 60:02}:{left % 60:02}", False
    days = left // 86_400
    return (f"{days} d {left // 3600 % 24:02} h" if days < 1000 else f"{days} d"), False


def hop_story(line: TraceLine, now: float) -> str:
    """Everything about one hop."""
    left, expired = expiry(line.expires_at, now)
    facts = [
        ("from", line.sender),
        ("to", line.to),
        ("at", f"{since(line.at, now)} ({clock(line.at)})"),
        ("run", line.run_id),
        ("asked by", ", ".join(line.runs[1:])),
        ("method", line.method),
        ("answer", line.answer if line.outcome or line.status is None else f"HTTP {line.status}"),
        ("times", count(line.times, "time") if line.times > 1 else ""),
        ("source", _explained(line)),
        ("key", line.fingerprint or "none"),
        ("for", ", ".join(line.audience) or ("not told" if line.fingerprint else "")),
    ]
    if line.expires_at is not None:
        when = f"{since(line.expires_at, now)} ({clock(line.expires_at)})"
        facts.append(("expires", f"{when}, expired" if expired else f"{when}, in {left}"))
    elif line.fingerprint:
        facts.append(("expires", "not told"))
    width = max(len(name) for name, _ in facts) + 2
    lines = [f"{name:<{width}}{text}" for name, text in facts if text]
    if line.odd:
        lines += ["", "What is odd:", *(f"  {reason}" for reason in line.odd)]
    lines += [
        "",
        "A key is told by its fingerprint: the same one is the same key, as long as this fleet lives.",
        "What it is for and when it expires is what it says itself, and nobody checked that here.",
    ]
    return "\n".join(lines)


def _explained(line: TraceLine) -> str:
    match line.source:
        case "caller":
            return "what the caller sent"
        case "forwarded":
            return "forwarded: the caller's own"
        case "configured":
            return "configured: from the project's files"
    return "none: no credential went along"


def _answer_style(line: TraceLine) -> str:
    if line.outcome:
        return {"error": "$text-error", "running": "$text-primary"}.get(line.outcome, DIM)
    if line.status is None or line.status >= 500:
        return "$text-error"
    return "bold $text-error" if line.status in (401, 403, 407) else DIM


def _columns(
    width: int,
    time: str,
    run: str,
    who: str,
    source: str,
    key: str,
    audience: str,
    left: str,
    method: str,
    answer: str,
    glyphs: Glyphs | None = None,
) -> list[tuple[str, str]]:
    """The columns that fit, each with its name; who sent it to whom has the room that is left."""
    glyphs = glyphs or Glyphs()
    narrow = width < _NARROW
    right_side = [
        (fit(_SHORT.get(source, source), 4) if narrow else fit(source, _SOURCE_WIDTH), "source"),
        (" " + fit(key[: _KEY_WIDTH - 2 * narrow], _KEY_WIDTH - 2 * narrow) + " ", "key"),
    ]
    if width >= _WIDE:
        right_side.append((fit(audience, (width - _WIDE) // 4 + 10, glyphs) + " ", "for"))
        right_side.append((fit(method, _METHOD_WIDTH, glyphs) + " ", "method"))
    if width >= _TINY:
        right_side.append((right(left, _EXPIRY_WIDTH) + " ", "left"))
    right_side.append((fit(answer, 7 if narrow else _ANSWER_WIDTH, glyphs), "answer"))
    left_side = [(f"{time:<8} ", "time")]
    if not narrow:
        left_side.append((fit(run, _RUN_WIDTH) + " ", "run"))
    room = width - 1 - sum(cell_len(text) for text, _ in (*left_side, *right_side)) - 1
    return [*left_side, (fit(who, room, glyphs) + " ", "who"), *right_side]
