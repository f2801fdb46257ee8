"""The differences between two versions of an agent."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final

from pallas.config.files import shown
from pallas.model import Change, Part, ToolDetail
from pallas.safe_text import one_line
from pallas.toolbox.plain_json import text_of

from .agent_digest import AgentDigest
from .source_files import SourceFiles, text_now

# Most changes reported, and characters of the diff of one.
MAX_CHANGES: Final = 100
MAX_DIFF: Final = 19_000
# Characters of all diffs of one event together: many events are kept.
MAX_ALL: Final = 64 * 1024
_ONE_LINE: Final = 300
# Lines of a text beyond which it is not compared line by line: that takes the square of them.
_MAX_LINES: Final = 20_000


def changes(before: AgentDigest, after: AgentDigest) -> tuple[Change, ...]:
    """List what differs outside, ``MAX_CHANGES`` at most; the last one says how many more there are."""
    return bounded(
        (
            *_of_instruction(before, after),
            *_of_model(before, after),
            *_of_servers(before, after),
            *_of_tools(before, after),
            *_of_config(before, after),
        )
    )


def file_changes(
    root: Path, files: Iterable[Path], before: SourceFiles, after: SourceFiles | None
) -> tuple[Change, ...]:
    """How the texts of ``files`` differ; ``after`` None stands for what the files hold now. Blocks then."""
    found: list[Change] = []
    for path in sorted(set(files)):
        old = before.text(path)
        known = after is not None and path in after.files
        new = after.text(path) if after is not None and known else text_now(path)
        name = one_line(shown(root, path))
        was, is_ = before.files.get(path), (after.files.get(path) if after is not None else None)
        if old is None or new is None:
            if was is None or is_ is None or was.digest != is_.digest:
                problem = "its text is not known or too long to compare"
                found.append(Change("file", "changed", name, after=problem))
            continue
        if old != new:
            found.append(Change("file", _kind(old, new), name, diff=text_diff(old, new)))
    return bounded(found)


def text_diff(before: str, after: str) -> str:
    """A unified diff without its two heads, sanitised, secrets masked, ``MAX_DIFF`` characters at most."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MAX_LINES:
        return f"it has {len(new)} lines, {len(old)} before: too many to compare"
    lines = list(unified_diff(old, new, lineterm="", n=2))[2:]
    return text_of("\n".join(lines), MAX_DIFF)


def _of_instruction(before: AgentDigest, after: AgentDigest) -> Iterator[Change]:
    if before.instruction != after.instruction:
        yield _text("instruction", "", before.instruction, after.instruction)
    for name in _names(before.children, after.children):
        old, new = before.children.get(name), after.children.get(name)
        if old is None or new is None:
            yield Change("agent", "added" if old is None else "removed", name)
            continue
        if old.instruction != new.instruction:
            yield _text("instruction", name, old.instruction, new.instruction)
        if old.model != new.model:
            yield _line("model", name, old.model, new.model)


def _of_model(before: AgentDigest, after: AgentDigest) -> Iterator[Change]:
    if before.model != after.model:
        yield _line("model", "", before.model, after.model)


def _of_servers(before: AgentDigest, after: AgentDigest) -> Iterator[Change]:
    for name in _names(before.servers, after.servers):
        old, new = before.servers.get(name, ""), after.servers.get(name, "")
        if old != new:
            yield Change(
                "servers",
                _kind(old, new),
                name,
                before=_where(old),
                after=_where(new),
                diff=_json_diff(old, new) if old and new else "",
            )
        elif before.marks.get(f"server {name}") != after.marks.get(f"server {name}"):
            yield Change("servers", "changed", name, after="a secret part of its settings changed")


def _of_tools(before: AgentDigest, after: AgentDigest) -> Iterator[Change]:
    for server in _names(before.tools, after.tools):
        old, new = _listed(before, server), _listed(after, server)
        if old is None or new is None:
            continue  # it could not be asked: that it has none is not known
        for name in _names(old, new):
            change = _tool(f"{server}/{name}" if server else name, old.get(name), new.get(name))
            if change is not None:
                yield change


def _listed(version: AgentDigest, server: str) -> Mapping[str, ToolDetail] | None:
    """The tools of a server then; none where there was no such server, None where they are not known."""
    return version.tools.get(server, {} if version.tools and server not in version.servers else None)


def _of_config(before: AgentDigest, after: AgentDigest) -> Iterator[Change]:
    for name in _names(before.config, after.config):
        old, new = before.config.get(name, ""), after.config.get(name, "")
        if old != new:
            yield _line("config", name, _spoken(old), _spoken(new))
    if before.marks.get("auth") != after.marks.get("auth"):
        yield Change("config", "changed", "auth", after="another set of callers may use it")
    if before.marks.get("secrets") != after.marks.get("secrets"):
        name = "env" if "worker" in after.config.get("kind", "") else "headers"
        yield Change("config", "changed", name, after="a secret part of it changed")


def _tool(name: str, old: ToolDetail | None, new: ToolDetail | None) -> Change | None:
    if old == new:
        return None
    if old is None or new is None:
        known = old or new
        text = one_line(known.description, _ONE_LINE) if known is not None else ""
        return (
            Change("tools", "added", name, after=text)
            if old is None
            else Change("tools", "removed", name, before=text)
        )
    parts = []
    for label in ("title", "description"):
        was, is_ = getattr(old, label), getattr(new, label)
        if was != is_:
            parts.append(f"{label}\n{text_diff(was, is_)}")
    for label in ("input_schema", "output_schema"):
        was, is_ = getattr(old, label), getattr(new, label)
        if _canonical(was) != _canonical(is_):
            parts.append(f"{label.replace('_', ' ')}\n{_json_diff(was, is_)}")
    if not parts:  # the same in another order
        return None
    return Change("tools", "changed", name, diff=_cut("\n".join(parts)))


def _text(part: Part, name: str, old: str, new: str) -> Change:
    return Change(part, _kind(old, new), name, diff=text_diff(old, new))


def _line(part: Part, name: str, old: str, new: str) -> Change:
    return Change(part, _kind(old, new), name, one_line(old, _ONE_LINE), one_line(new, _ONE_LINE))


def _kind(old: str, new: str) -> Any:
    return "added" if not old else "removed" if not new else "changed"


def _json_diff(old: str, new: str) -> str:
    return text_diff(_canonical(old), _canonical(new))


def _canonical(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) if text else ""
    except (ValueError, RecursionError):
        return text


def _where(settings: str) -> str:
    """Where a server of these settings is, in a line."""
    try:
        known = json.loads(settings) if settings else {}
    except ValueError:
        return ""
    place = known.get("url") or " ".join(map(str, [known.get("command") or "", *(known.get("args") or ())]))
    return one_line(str(place), _ONE_LINE)


def _spoken(text: str) -> str:
    """A JSON text as a person writes it: a string without its quotes, nothing for null."""
    try:
        value = json.loads(text) if text else None
    except ValueError:
        return text
    if value in (None, [], {}, ""):
        return ""
    return value if isinstance(value, str) else text


def _names[K](*each: Mapping[K, Any]) -> Sequence[K]:
    return sorted({name for mapping in each for name in mapping})  # type: ignore[type-var]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_DIFF else text[: MAX_DIFF - 2] + "\n…"


def bounded(found: Iterable[Change]) -> tuple[Change, ...]:
    """Return ``MAX_CHANGES`` at most, with ``MAX_ALL`` characters of diffs; count those left out."""
    changes: list[Change] = []
    left, more = MAX_ALL, 0
    for change in found:
        if len(changes) == MAX_CHANGES:
            more += 1
            continue
        if change.diff and len(change.diff) > left:
            change = replace(
                change, diff="", after=change.after or "its lines are left out: there are too many"
            )
        left -= len(change.diff)
        changes.append(change)
    if more:
        changes[-1] = Change("file", "changed", "…", after=f"and {more + 1} more changes")
    return tuple(changes)
