"""The previous tool lists of servers, by which changes are found."""

import asyncio
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from time import time
from typing import Any, Final, TypeGuard

from pallas.json_file import MAX_FILE, JsonFile
from pallas.model import ToolChanges, ToolDetail
from pallas.safe_text import one_line

log = logging.getLogger(__name__)

# The limit of remembered servers; the one that was not looked at for longest is dropped first.
MAX_SERVERS: Final = 200
_VERSION: Final = 1

Digests = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Lists:
    """The list as it was last ``seen``, and the different list before it."""

    tools: Digests
    seen: float
    before: Digests | None = None
    before_seen: float | None = None


class SeenTools:
    """Tool lists by server: names, and a digest of each tool's description; no calls.

    A change is reported until the next one, with the time when the old list was last seen, so that looking
    twice loses nothing. With ``path`` the lists are stored in that file between two starts (see
    ``seen_path``); a file that cannot be used is logged once and ignored.
    """

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = time) -> None:
        self._file = JsonFile(path) if path is not None else None
        self._clock = clock
        self._lists: dict[str, _Lists] | None = None if path is not None else {}
        self._lock = asyncio.Lock()

    async def noted(self, looked_at: Mapping[str, Sequence[ToolDetail]]) -> dict[str, ToolChanges]:
        """Return the changes of these servers' lists, by server, and remember the new lists."""
        async with self._lock:
            if self._lists is None:
                self._lists = await asyncio.to_thread(self._load)
            found = {server: self._note(self._lists, server, tools) for server, tools in looked_at.items()}
            while len(self._lists) > MAX_SERVERS:
                del self._lists[min(self._lists, key=lambda name: self._lists[name].seen)]  # type: ignore[index]
            if self._file is not None and looked_at:
                await asyncio.to_thread(self._save, self._file, dict(self._lists))
            return found

    def _note(self, lists: dict[str, _Lists], server: str, tools: Sequence[ToolDetail]) -> ToolChanges:
        now, digests = self._clock(), {tool.name: _digest(tool) for tool in tools}
        known = lists.get(server)
        if known is None:
            known = _Lists(digests, now)
        elif known.tools == digests:
            known = replace(known, seen=now)
        else:
            known = _Lists(digests, now, known.tools, known.seen)
        lists[server] = known
        if known.before is None:
            return ToolChanges()
        before, after = known.before, known.tools
        return ToolChanges(
            added=tuple(name for name in after if name not in before),
            removed=tuple(name for name in before if name not in after),
            changed=tuple(name for name in after if name in before and after[name] != before[name]),
            since=known.before_seen,
        )

    def _load(self) -> dict[str, _Lists]:
        assert self._file is not None
        document, problem = self._file.load()
        if problem:
            log.warning("tool lists seen before: %s", problem)
        if not isinstance(document, dict) or document.get("version") != _VERSION:
            return {}
        servers = document.get("servers")
        return {
            one_line(name, 300): lists
            for name, entry in (servers.items() if isinstance(servers, dict) else ())
            if (lists := _read(entry)) is not None
        }

    def _save(self, file: JsonFile, lists: dict[str, _Lists]) -> None:
        document = {"version": _VERSION, "servers": {name: _written(each) for name, each in lists.items()}}
        try:
            if len(json.dumps(document, indent=2)) > MAX_FILE:
                raise ValueError(f"more than {MAX_FILE} bytes")
            file.save(document)
        except (OSError, ValueError) as error:
            log.warning("tool lists are not kept in %s (%s)", file.path, one_line(str(error)))
            self._file = None


def seen_path(root: Path, log_file: Path) -> Path | None:
    """Return the file for the project at ``root``, next to the log; None if the log is no regular file."""
    name = blake2b(str(root).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    return log_file.with_name(f"tools-{name}.json") if log_file.is_file() else None


def _digest(tool: ToolDetail) -> str:
    parts = (tool.title, tool.description, tool.input_schema, tool.output_schema)
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _written(lists: _Lists) -> dict[str, Any]:
    entry: dict[str, Any] = {"tools": lists.tools, "seen": lists.seen}
    if lists.before is not None:
        entry |= {"before": lists.before, "before_seen": lists.before_seen}
    return entry


def _read(entry: Any) -> _Lists | None:
    """Return an entry of the file, None if it is invalid: any program may have written it."""
    if not isinstance(entry, dict):
        return None
    tools, seen = _digests(entry.get("tools")), entry.get("seen")
    if tools is None or not _is_time(seen):
        return None
    before, before_seen = _digests(entry.get("before")), entry.get("before_seen")
    if before is None or not _is_time(before_seen):
        return _Lists(tools, seen)
    return _Lists(tools, seen, before, before_seen)


def _digests(value: Any) -> dict[str, str] | None:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        return None
    return {one_line(name, 200): digest for name, digest in value.items()}


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
