"""A request as a line of the table, and in full."""

from typing import Final

from rich.cells import cell_len

from ...runs.credential_line import CredentialLine
from ...runs.run_requests import short
from ...text import DURATION_WIDTH, Glyphs, Line, clock, count, cropped, duration, fit, moment, right
from ..tones import DIM

_SOURCES: Final = {"caller": "caller", "forwarded": "forward", "configured": "config", "none": "none"}
_SHORT: Final = {"source": "src", "caller": "call", "forward": "fwd", "config": "conf"}
_RUN_WIDTH: Final = 6
_KEY_WIDTH: Final = 8
_SOURCE_WIDTH: Final = 7
_EXPIRY_WIDTH: Final = 9
_ANSWER_WIDTH: Final = 9
_WIDE: Final = 110
_NARROW: Final = 72
_TINY: Final = 56


def header(width: int, glyphs: Glyphs) -> Line:
    """Return the names of the columns."""
    return tuple(
        (text, DIM)
        for text, _ in _columns(
            width,
            "time",
            "run",
            (f"from {glyphs.outbound} to",),
            "source",
            "key",
            "for",
            "expires",
            "took",
            "answer",
            glyphs,
        )
    )


def credential_line(
    line: CredentialLine, width: int, now: float, glyphs: Glyphs, *, alone: bool = False
) -> Line:
    """Return one request. ``alone`` it has no line of its run above it, and names the caller."""
    again = f" x{line.times}" if line.times > 1 else ""
    arrow = f" {glyphs.outbound} "
    what = f"/{line.tool}" if line.tool else f" {line.method}" if line.method and not line.outcome else ""
    route = tuple(f"{line.sender}{arrow}{line.to}{each}{again}" for each in (what, ""))
    if not alone:
        route = tuple("  " * line.depth + each for each in route)
    elif line.caller:
        route = (*(f"{line.caller}{arrow}{each}" for each in route), *route)
    left, expired = expiry(line.expires_at, now)
    key = short(line.fingerprint) or "-"
    columns = _columns(
        width,
        clock(line.at),
        line.run_id[:_RUN_WIDTH],
        route,
        _SOURCES[line.source],
        key,
        ", ".join(line.audience),
        left,
        duration(line.seconds) if line.seconds is not None else "",
        line.answer,
        glyphs,
    )
    styles = {
        "run": DIM,
        "time": DIM,
        "route": "bold" if line.outcome else DIM if line.parts else "",
        "source": DIM if line.source == "none" else "",
        "key": "",
        "for": DIM,
        "left": "$text-warning" if expired else DIM,
        "took": DIM,
        "answer": _answer_style(line),
    }
    parts = [(text, styles.get(name, "")) for text, name in columns]
    mark = (glyphs.degraded, "bold $text-warning") if line.findings else (" ", "")
    return cropped((mark, *parts), width)


def expiry(expires_at: float | None, now: float) -> tuple[str, bool]:
    """Return how long a key is still valid, in a steady width, and whether it expired."""
    if expires_at is None:
        return "", False
    left = int(expires_at - now)
    if left < 0:
        return "expired", True
    if left < 100 * 3600:
        return f"{left // 3600:02}:{left // 60 % 60:02}:{left % 60:02}", False
    days = left // 86_400
    return (f"{days} d {left // 3600 % 24:02} h" if days < 1000 else f"{days} d"), False


def request_details(line: CredentialLine, now: float) -> str:
    """Return the details of one request."""
    left, expired = expiry(line.expires_at, now)
    facts = [
        ("from", line.sender),
        ("to", line.to),
        ("at", moment(line.at, now)),
        ("run", line.run_id),
        ("caller", line.caller),
        ("asked by", ", ".join(f"run {run}" for run in line.runs[1:])),
        ("tool", line.tool),
        ("method", ", ".join(line.parts) or line.method),
        (
            "answer",
            line.answer if line.outcome or line.asked or line.status is None else f"HTTP {line.status}",
        ),
        ("times", count(line.times, "time") if line.times > 1 else ""),
        ("took", duration(line.seconds) if line.seconds is not None else ""),
        *((("source", _explained(line)), ("key", line.fingerprint or "none")) if not line.asked else ()),
        ("for", ", ".join(line.audience) or ("unknown" if line.fingerprint else "")),
        *line.claims,
    ]
    if line.expires_at is not None:
        when = moment(line.expires_at, now)
        facts.append(("expires", f"{when}, expired" if expired else f"{when}, in {left}"))
    elif line.fingerprint:
        facts.append(("expires", "unknown"))
    width = max(len(name) for name, _ in facts) + 2
    lines = [f"{name:<{width}}{text}" for name, text in facts if text]
    if line.findings:
        lines += ["", "Findings:", *(f"  {reason}" for reason in line.findings)]
    if line.asked:
        return "\n".join(lines)
    lines += [
        "",
        "A key is shown by its fingerprint, which stays the same while this fleet runs.",
        "Audience, expiry and the other claims are what the key itself says; they are not checked here.",
    ]
    return "\n".join(lines)


def _explained(line: CredentialLine) -> str:
    match line.source:
        case "caller":
            return "what the caller sent"
        case "forwarded":
            return "forwarded: the caller's own"
        case "configured":
            source = f"the variable {line.variable}" if line.variable else "the project's files"
            return f"configured: from {source}"
    return "none: no credential was sent"


def _answer_style(line: CredentialLine) -> str:
    if line.outcome:
        return {"error": "$text-error", "running": "$text-primary"}.get(line.outcome, DIM)
    if line.asked:
        return DIM if line.asked == "accepted" else "$text-warning"
    if line.status is None or line.status >= 500:
        return "$text-error"
    return "bold $text-error" if line.status in (401, 403, 407) else DIM


def _columns(
    width: int,
    time: str,
    run: str,
    route: tuple[str, ...],
    source: str,
    key: str,
    audience: str,
    left: str,
    took: str,
    answer: str,
    glyphs: Glyphs,
) -> list[tuple[str, str]]:
    """Return the columns that fit, each with its name.

    Sender and receiver take the room that is left: the first that fits it, else the last.
    """
    narrow = width < _NARROW
    right_side = [
        (fit(_SHORT.get(source, source), 4) if narrow else fit(source, _SOURCE_WIDTH), "source"),
        (" " + fit(key[: _KEY_WIDTH - 2 * narrow], _KEY_WIDTH - 2 * narrow) + " ", "key"),
    ]
    if width >= _WIDE:
        right_side.append((fit(audience, (width - _WIDE) // 4 + 10, glyphs) + " ", "for"))
        right_side.append((right(took, DURATION_WIDTH) + " ", "took"))
    if width >= _TINY:
        right_side.append((right(left, _EXPIRY_WIDTH) + " ", "left"))
    right_side.append((fit(answer, 7 if narrow else _ANSWER_WIDTH, glyphs), "answer"))
    left_side = [(f"{time:<8} ", "time")]
    if not narrow:
        left_side.append((fit(run, _RUN_WIDTH) + " ", "run"))
    room = width - 1 - sum(cell_len(text) for text, _ in (*left_side, *right_side)) - 1
    shown = next((each for each in route if cell_len(each) <= room), route[-1])
    return [*left_side, (fit(shown, room, glyphs) + " ", "route"), *right_side]
