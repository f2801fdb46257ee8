"""What differs between a server as it was locked and as it is now."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pallas.model.tool_lock import LockChange, LockedKind
from pallas.safe_text import one_line, sanitize

from .invisible import visible
from .schema_change import schema_change
from .surface import Document, Items, Surface, digest_of

MAX_TEXT: Final = 100_000
"""Characters of the texts of one thing that a change holds."""
_SCHEMAS: Final = {"inputSchema": "input schema", "outputSchema": "output schema"}


def surface_changes(locked: Surface, now: Surface) -> tuple[LockChange, ...]:
    """Return all that differs: instructions first, then tools, prompts and resources by name."""
    found = [*instructions_change(locked.instructions, now.instructions)]
    for what, items in now.lists.items():
        found += items_changes(what, locked.lists[what], items)
    return tuple(found)


def instructions_change(locked: str, now: str) -> Iterator[LockChange]:
    """Yield what became of the instructions; nothing if they are the same."""
    if locked == now:
        return
    kind: Any = "added" if not locked else "removed" if not now else "changed"
    yield LockChange(kind, "instructions", before=_shown(locked), after=_shown(now))


def items_changes(what: LockedKind, locked: Items, now: Items) -> Iterator[LockChange]:
    """Yield what became of the things of a list, by name.

    A thing that is gone, of which a new one has the same text, was renamed.
    """
    renamed = _renames(locked, now)
    gone = {*locked} - {*now} - {*renamed.values()}
    for name in sorted({*now} | gone):
        if name in gone:
            yield LockChange("removed", what, _name(name), before=text_of(locked[name]))
        elif name not in locked:
            yield _new(what, name, renamed.get(name), locked, now)
        elif locked[name] != now[name]:
            yield _changed(what, name, locked[name], now[name])


def text_of(item: Document) -> str:
    """Return the texts of a tool, prompt or resource in lines, to read and to compare word by word."""
    lines = []
    for key in ("title", "name", "mimeType", "description"):
        if item.get(key):
            lines += [str(item[key]), ""]
    for key in sorted({*item} - {"title", "name", "mimeType", "description"}):
        lines += [f"{key}:", json.dumps(item[key], indent=2, ensure_ascii=False, sort_keys=True), ""]
    return _shown("\n".join(lines).rstrip("\n"))


def _renames(locked: Items, now: Items) -> Mapping[str, str]:
    """The old names of new things, by their new names. Of several with the same text each is used once."""
    gone: dict[str, list[str]] = {}
    for name in sorted(locked):
        if name not in now:
            gone.setdefault(_untitled_digest(locked[name]), []).append(name)
    found = {}
    for name in sorted(now):
        if name not in locked and (old := gone.get(_untitled_digest(now[name]))):
            found[name] = old.pop(0)
    return found


def _untitled_digest(item: Document) -> str:
    """Of a thing without its titles: libraries make them from its name."""
    plain = {key: value for key, value in item.items() if key not in ("title", "name")}
    for key in _SCHEMAS:
        if isinstance(schema := plain.get(key), Mapping):
            plain[key] = {name: value for name, value in schema.items() if name != "title"}
    return digest_of(plain)


def _new(what: LockedKind, name: str, old: str | None, locked: Items, now: Items) -> LockChange:
    after = text_of(now[name])
    if old is None:
        return LockChange("added", what, _name(name), after=after)
    return LockChange("renamed", what, _name(name), _name(old), before=text_of(locked[old]), after=after)


def _changed(what: LockedKind, name: str, before: Document, after: Document) -> LockChange:
    details = []
    for key in sorted({*before, *after}):
        if before.get(key) == after.get(key):
            continue
        if key in _SCHEMAS and key in before and key in after:
            details += [f"{_SCHEMAS[key]} {word}" for word in schema_change(before[key], after[key])]
        else:
            word = _SCHEMAS.get(key, key)
            details.append(word if key in before and key in after else _came(word, key in after))
    return LockChange("changed", what, _name(name), "", tuple(details), text_of(before), text_of(after))


def _came(word: str, is_new: bool) -> str:
    return f"{word} {'added' if is_new else 'removed'}"


def _name(name: str) -> str:
    return one_line(visible(name), 200)


def _shown(text: str) -> str:
    return sanitize(visible(text), MAX_TEXT)
