"""An envelope as text: XML to read, payload to send again, and its facts."""

import re
from collections.abc import Iterator
from typing import Final

from pallas.model import Envelope
from pallas.safe_text import sanitize

from ..runs.feed_run import FeedRun
from ..text import Line, clock, duration

MAX_PRETTY: Final = 100_000
"""Characters of XML that are shown; a copy is not cut."""
LABEL: Final = 8
"""Width of a fact's name in cells."""

_STRONG: Final = "bold"
_DIM: Final = "dim"
_KEY: Final = "$text-accent"
_WRONG: Final = "$text-error"
_WARNED: Final = "$text-warning"
_TAG: Final = re.compile(r"<[^<>]*>")
_UNDONE: Final = {
    "routing": "not checked: it may not go there",
    "dropped": "not checked: its frame had ended",
}
_SYSTEM: Final = ("routing", "validation", "timeout")


def payload_of(letter: Envelope) -> str:
    """Return the payload's XML as it is in the envelope; empty if it was cut or there is none."""
    if letter.cut:
        return ""
    _, meta, rest = letter.xml.partition("</meta>")
    if not meta:  # an empty one, or another prefix
        _, meta, rest = letter.xml.partition("<meta/>")
    payload, closing, _ = rest.rpartition("</message>")
    return payload.strip() if meta and closing else ""


def pretty(xml: str) -> str:
    """Return XML indented where it is well-formed, else unchanged.

    Parsing may restore characters that were written as references: they are sanitised again.
    """
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, remove_blank_text=True, load_dtd=False, huge_tree=False
    )
    try:
        root = etree.fromstring(xml.encode(), parser)
        if root.getroottree().docinfo.doctype:
            return xml
        etree.indent(root)
        return sanitize(etree.tostring(root, encoding="unicode"))
    except (etree.XMLSyntaxError, ValueError):
        return xml


def xml_lines(xml: str) -> list[Line]:
    """Return XML line by line; tags have another colour than text."""
    if not xml:
        return []
    shown = xml if len(xml) > MAX_PRETTY else pretty(xml)
    cut = shown[:MAX_PRETTY]
    lines = [_coloured(line) for line in cut.split("\n")]
    if len(cut) < len(shown):
        lines.append(((f"… cut after {MAX_PRETTY:,} characters; y copies all", _DIM),))
    return lines


def _coloured(line: str) -> Line:
    parts: list[tuple[str, str]] = []
    at = 0
    for tag in _TAG.finditer(line):
        if tag.start() > at:
            parts.append((line[at : tag.start()], ""))
        parts.append((tag.group(), _KEY))
        at = tag.end()
    if at < len(line):
        parts.append((line[at:], ""))
    return tuple(parts)


def title_of(letter: Envelope, arrow: str = "→") -> str:
    """Return number, route, sender and receiver."""
    return f"{letter.number} {letter.route} {letter.sender} {arrow} {letter.to or 'no one'}"


def checked(letter: Envelope) -> str:
    """Return the result of the schema check, in words."""
    name = letter.payload or "payload"
    if letter.outcome == "delivered":
        return f"fits {name}" if letter.payload else "none: it holds no message"
    if letter.outcome == "refused" and letter.code != "routing":
        return (
            f"does not fit {name}" if letter.code == "validation" else f"{name}: {letter.code or 'refused'}"
        )
    return _UNDONE["dropped" if letter.outcome == "dropped" else "routing"]


def result_of(letter: Envelope) -> str:
    """Return how it ended, in a word or two."""
    return letter.outcome + (f": {letter.code}" if letter.code and letter.outcome != "delivered" else "")


def outcome_of(letter: Envelope, running: bool) -> Iterator[tuple[str, str, str]]:
    """Iterate over the outcome of a message: a name, a value and its style."""
    wrong = letter.outcome != "delivered"
    yield "result", result_of(letter), _WRONG if wrong else ""
    yield "schema", checked(letter), _WRONG if letter.code == "validation" else ""
    if letter.detail:
        yield "why", letter.detail, _WRONG if wrong else _WARNED
    if wrong:
        yield "told", _reply_to_sender(letter), ""
    if letter.seconds is not None:
        yield "took", duration(letter.seconds), ""
    elif not wrong and letter.route not in ("result", "end"):
        yield "took", "at work" if running else "not known", _DIM


def place_of(letter: Envelope) -> Iterator[tuple[str, str, str]]:
    """Iterate over where a message belongs."""
    yield "route", _route(letter), ""
    yield "at", clock(letter.at), ""
    yield "frame", letter.frame, ""
    if letter.parent:
        yield "below", letter.parent, ""
    if letter.left:
        yield "ended", letter.left, ""
    yield "run", letter.run_id, ""


def _reply_to_sender(letter: Envelope) -> str:
    code = letter.code if letter.code in _SYSTEM else "failure"
    if letter.outcome == "dropped":
        return "no one: its recipient no longer exists"
    return f"{letter.sender} got a SystemError ({code}) without these details"


def _route(letter: Envelope) -> str:
    sender, to = letter.sender, letter.to or "no one"
    return {
        "boot": f"the fleet's first message, to {to}",
        "call": f"a call: {sender} asks {to} in a frame of its own",
        "self": f"{sender} continues alone, in the same frame",
        "respond": f"an answer: ends the frame of {sender} with all below it",
        "result": f"the result: ends the frame of {sender}, and goes to the run's caller",
        "error": f"a SystemError to {to}",
        "end": f"the frame of {sender} ended without an answer",
    }.get(letter.route, letter.route)


def lines_of(letter: Envelope, running: bool, reading: str = "", arrow: str = "→") -> list[Line]:
    """Return all of a message, line by line; a line may be wider than the screen.

    ``reading`` says why the XML is missing or cut.
    """
    lines: list[Line] = [((title_of(letter, arrow), _STRONG),), *_facts(outcome_of(letter, running))]
    if letter.cut:
        lines.append((("It was longer than what is kept; it ends where it was cut.", _WARNED),))
    lines.append(())
    if letter.xml:
        lines += xml_lines(letter.xml)
    else:
        nothing = "Its XML is no longer kept." if letter.payload else "It is empty."
        lines.append(((reading or nothing, _DIM),))
    return [*lines, (), *_facts(place_of(letter))]


def _facts(found: Iterator[tuple[str, str, str]]) -> list[Line]:
    return [((f"{name:<{LABEL}}", _DIM), (value, style)) for name, value, style in found]


def hang_of(line: Line) -> int:
    """Return the indentation of a wrapped line: below a fact's value, or further in than the XML."""
    if not line:
        return 0
    text = line[0][0]
    return LABEL if line[0][1] == _DIM and len(text) == LABEL else len(text) - len(text.lstrip()) + 4


def as_text(letter: Envelope, running: bool = False) -> str:
    """Return all of it as text to paste."""
    facts = [*outcome_of(letter, running), *place_of(letter)]
    fact_lines = [f"{name:<{LABEL}}{value}" for name, value, _ in facts]
    return "\n".join([title_of(letter), *fact_lines, "", pretty(letter.xml) if letter.xml else ""]).rstrip()


def run_lines(run: FeedRun, now: float) -> list[Line]:
    """Return the facts of a run among the messages."""
    took = run.elapsed(now)
    facts = (
        ("state", run.state + ("" if took is None else f", {duration(took, run.running)}"), ""),
        ("asked", run.preview, ""),
        ("why", run.fault, _WRONG),
        ("run", run.id, ""),
    )
    return [
        ((f"run of {run.agent}", _STRONG),),
        *_facts(fact for fact in facts if fact[1]),
        (),
        (("It is a run of its own: enter goes there in the feed.", _DIM),),
    ]
