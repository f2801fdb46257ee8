"""The changes of a new version, as paragraphs: signs repeat the colours."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from pallas.model import Change, ChangeKind, Part, Reloaded

from ..text import clock, duration
from .reload_words import LETS_THROUGH, error_of, failed_version, is_open, name_of, outcome_word

Paragraph = tuple[str, str]

_PLAIN: Final = ""
_STRONG: Final = "bold"
_DIM: Final = "dim"
_ADDED: Final = "$text-success"
_REMOVED: Final = "$text-error"
_CHANGED: Final = "$text-warning"
_WRONG: Final = "bold $text-error"
_SIGNS: Final[dict[ChangeKind, tuple[str, str]]] = {
    "added": ("+", _ADDED),
    "removed": ("-", _REMOVED),
    "changed": ("~", _CHANGED),
}
_ORDER: Final[tuple[Part, ...]] = ("agent", "instruction", "model", "servers", "tools", "config", "file")
_HEADINGS: Final[dict[Part, str]] = {
    "agent": "agents",
    "instruction": "instruction",
    "model": "model",
    "servers": "servers",
    "tools": "tools",
    "config": "configuration",
    "file": "files",
}


def paragraphs(event: Reloaded, answers: int = 0) -> Sequence[Paragraph]:
    """The whole of an attempt; ``answers`` is the version that answers now, 0 where that is not known."""
    return tuple(_paragraphs(event, answers))


def plain(event: Reloaded, answers: int = 0) -> str:
    """The same as text to copy."""
    return "\n".join(text for text, _ in paragraphs(event, answers))


def _paragraphs(event: Reloaded, answers: int) -> Iterator[Paragraph]:
    failed, held = is_open(event), event.outcome == "held"
    yield _heading(event, answers), _CHANGED if held else _WRONG if failed else _STRONG
    yield f"{clock(event.at)}, took {duration(event.seconds)}", _DIM
    if event.files:
        yield f"saved: {', '.join(event.files)}", _DIM
    if failed:
        yield from _failure(event, answers)
    if event.context:
        yield from (("", _PLAIN), ("context of a request", _STRONG))
        for more in event.context:
            yield more.text, _ADDED if more.tokens < 0 else _CHANGED
    if not event.changes:
        if not failed:
            yield from (("", _PLAIN), ("It does not differ from the previous version.", _DIM))
        return
    if failed:
        yield from (("", _PLAIN), ("What would change" if held else "Changes of the failed edit", _STRONG))
    ranked = sorted(event.changes, key=lambda change: _ORDER.index(change.part))
    for part, changes in groupby(ranked, key=lambda change: change.part):
        yield "", _PLAIN
        yield _HEADINGS[part], _STRONG
        for change in changes:
            yield from _change(change)


def _heading(event: Reloaded, answers: int) -> str:
    name = name_of(event)
    if is_open(event):
        version, word = failed_version(event, answers), outcome_word(event)
        return f"{name} v{version} {word}" if version and event.agent else f"{name}: {word}"
    if event.outcome == "unchanged":
        return f"{name}: saved, no difference"
    version_text = f" v{event.version}" if event.version and event.agent else ""
    return f"{name}{version_text} " + ("live (rolled back)" if event.rolled_back else "live")


def _failure(event: Reloaded, answers: int) -> Iterator[Paragraph]:
    yield "", _PLAIN
    if event.place:
        yield event.place, _WRONG
    yield error_of(event) or "No reason was given; see the log.", _WRONG
    if event.agent:
        still = f"v{answers}" if answers else "The previous version"
        fix = f"A shows the tests; {LETS_THROUGH}" if event.outcome == "held" else "Fix the file and save it"
        yield f"{still} answers as before. {fix}.", _PLAIN
    story = event.story.strip().removeprefix(event.error.strip()).strip()
    if story:
        yield "", _PLAIN
        for line in story.splitlines():
            yield line, _PLAIN


def _change(change: Change) -> Iterator[Paragraph]:
    sign, style = _SIGNS[change.kind]
    if change.name or not (change.before or change.after or change.diff):
        yield f"{sign} {change.name or change.kind}", style
    if change.before:
        yield f"  - {change.before}", _REMOVED
    if change.after:
        yield f"  + {change.after}", _ADDED
    for line in change.diff.splitlines():
        yield f"  {line}", _style_of(line)


def _style_of(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return _DIM
    return {"+": _ADDED, "-": _REMOVED}.get(line[:1], _PLAIN)


def place_to_open(event: Reloaded) -> str:
    """Where an editor is to open for it: where it went wrong, else the first file with its first line."""
    if event.place:
        return event.place
    for change in event.changes:
        if change.part == "file" and change.kind != "removed" and change.name:
            line = _first_line(change.diff)
            return f"{change.name}:{line}" if line else change.name
    return event.files[0] if event.files else ""


def _first_line(diff: str) -> int:
    """The first line of the new text that a unified diff touches, 0 without one."""
    at = 0
    for line in diff.splitlines():
        if line.startswith("@@"):
            _, _, new = line.partition("+")
            number = new.split(",")[0].split(" ")[0]
            at = int(number) if number.isdecimal() else 0
        elif at and not line.startswith(("+++", "---")):
            if line.startswith(("+", "-")):
                return at
            at += 1
    return at
