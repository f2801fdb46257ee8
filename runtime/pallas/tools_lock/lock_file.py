"""The file ``tools.lock`` of a project: read, written, and found again when it changes.

It is JSON for people: sorted, one line for each line of a description, invisible characters escaped. The same
servers give the same bytes.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final

from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

from .invisible import visible
from .surface import Document, Surface, digest_of

LOCK_FILE: Final = "tools.lock"
MAX_FILE: Final = 64 * 1024 * 1024
"""Bytes that are read of it."""
VERSION: Final = 1
_LISTS: Final = ("tools", "prompts", "resources", "resource_templates")
_KEYS: Final = {"resource_templates": "resourceTemplates"}
_AGAIN: Final = "run `pallas lock` again, or take the file from version control"


@dataclass(frozen=True, slots=True)
class LockedServer:
    """A server as it was accepted, or why it could not be looked at."""

    surface: Surface = field(default_factory=Surface)
    not_lockable: str = ""


@dataclass(frozen=True, slots=True)
class ToolsLock:
    """The servers of the lock by name."""

    servers: Mapping[str, LockedServer] = field(default_factory=dict)

    def with_servers(self, changed: Mapping[str, LockedServer | None]) -> "ToolsLock":
        """Return a lock in which these servers are replaced; those that are None are left out."""
        both = {**self.servers, **changed}
        return ToolsLock({name: each for name, each in both.items() if each is not None})


def lock_path(root: Path) -> Path:
    """Return where the lock of the project at ``root`` is."""
    return root / LOCK_FILE


def lock_text(lock: ToolsLock) -> str:
    """Return the lock as it is written."""
    servers = {name: _server_document(lock.servers[name]) for name in sorted(lock.servers)}
    text = json.dumps({"version": VERSION, "servers": servers}, indent=2, ensure_ascii=False)
    return visible(text) + "\n"


def parse_lock(text: str) -> ToolsLock:
    """Return the lock in ``text``. Raises Fault (CONFIG) with the line, or the key, and what to do."""
    try:
        document = json.loads(text, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise _fault(f":{line}", f"is not JSON: {getattr(error, 'msg', error)}") from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise _fault("", f"is not of version {VERSION}, which this release reads")
    servers = document.get("servers")
    if not isinstance(servers, dict):
        raise _fault(": servers", "is not a mapping")
    return ToolsLock({name: _server(name, entry) for name, entry in servers.items()})


def read_lock(root: Path) -> ToolsLock | None:
    """Return the project's lock, None without one. Raises Fault (CONFIG); reads a file."""
    try:
        with lock_path(root).open("rb") as file:
            raw = file.read(MAX_FILE + 1)
        if len(raw) > MAX_FILE:
            raise _fault("", f"is larger than {MAX_FILE // 2**20} MiB")
        return parse_lock(raw.decode("utf-8"))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise _fault("", "is not UTF-8") from error
    except OSError as error:
        raise _fault("", f"cannot be read: {error.strerror or error}") from error


def write_lock(root: Path, lock: ToolsLock) -> None:
    """Write the project's lock as a whole or not at all. Raises Fault (CONFIG).

    One that could not be read again is not written.
    """
    path = lock_path(root)
    raw = lock_text(lock).encode()
    if len(raw) > MAX_FILE:
        raise Fault(
            FaultType.CONFIG,
            f"{LOCK_FILE} would be larger than {MAX_FILE // 2**20} MiB and was not written; lock fewer "
            "servers: `pallas lock --server NAME`",
        )
    draft = path.with_name(f".{LOCK_FILE}.{os.getpid()}")
    try:
        draft.write_bytes(raw)
        draft.replace(path)
    except OSError as error:
        raise Fault(
            FaultType.CONFIG,
            f"{LOCK_FILE} cannot be written ({error.strerror or error}); write it where the project can be "
            "changed, with `pallas lock`, and deploy it",
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


class LockReader:
    """The lock of one project as it is on disk now. Its methods read files and may be called from any thread.

    A file that vanishes counts as it was read last: a lock does not end by being deleted under a fleet.
    """

    def __init__(self, root: Path) -> None:
        self._path = lock_path(root)
        self._root = root
        self._seen: tuple[int, int, int] | None = None
        self._found: ToolsLock | None = None
        self._problem = ""
        self._mutex = Lock()

    @property
    def version(self) -> tuple[int, int, int] | None:
        """Tell two states of the file apart; reads no content. None without a file."""
        with suppress(OSError):
            found = self._path.stat()
            return found.st_mtime_ns, found.st_size, found.st_ino
        return None

    def read(self) -> tuple[ToolsLock | None, str]:
        """Return the lock, None if there never was one, and in one line why it cannot be read."""
        with self._mutex:
            now = self.version
            if now is not None and now != self._seen:
                self._seen = now
                try:
                    self._found, self._problem = read_lock(self._root), ""
                except Fault as fault:
                    self._found, self._problem = ToolsLock(), one_line(fault.message, 300)
            return self._found, self._problem


def _server_document(server: LockedServer) -> Document:
    if server.not_lockable:
        return {"notLockable": server.not_lockable}
    surface = server.surface
    document: Document = {}
    if surface.instructions:
        document["instructions"] = {
            "digest": digest_of(surface.instructions),
            "text": _lines(surface.instructions),
        }
    for key in _LISTS:
        if items := getattr(surface, key):
            document[_KEYS.get(key, key)] = {name: _item_document(items[name]) for name in sorted(items)}
    return document


def _item_document(item: Document) -> Document:
    ordered = {key: item[key] for key in sorted(item)}
    if isinstance(text := ordered.get("description"), str):
        ordered["description"] = _lines(text)
    return {"digest": digest_of(item), **ordered}


def _lines(text: str) -> str | list[str]:
    return text.split("\n") if "\n" in text else text


def _server(name: str, entry: Any) -> LockedServer:
    if not isinstance(entry, dict):
        raise _fault(f": servers.{one_line(name, 80)}", "is not a mapping")
    if reason := entry.get("notLockable"):
        return LockedServer(not_lockable=one_line(str(reason), 300))
    place = f": servers.{one_line(name, 80)}"
    lists = {key: _items(f"{place}.{_KEYS.get(key, key)}", entry.get(_KEYS.get(key, key))) for key in _LISTS}
    return LockedServer(Surface(_instructions(place, entry.get("instructions")), **lists))


def _instructions(place: str, entry: Any) -> str:
    if entry is None:
        return ""
    text = _joined(entry.get("text")) if isinstance(entry, dict) else None
    if not isinstance(text, str):
        raise _fault(f"{place}.instructions", "has no text")
    _check(f"{place}.instructions", entry.get("digest"), text)
    return text


def _items(place: str, entries: Any) -> dict[str, Document]:
    if entries is None:
        return {}
    if not isinstance(entries, dict):
        raise _fault(place, "is not a mapping")
    return {name: _item(f"{place}.{one_line(name, 80)}", entry) for name, entry in entries.items()}


def _item(place: str, entry: Any) -> Document:
    if not isinstance(entry, dict):
        raise _fault(place, "is not a mapping")
    item = {key: value for key, value in entry.items() if key != "digest"}
    if "description" in item:
        item["description"] = _joined(item["description"])
    _check(place, entry.get("digest"), item)
    return item


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises Fault for a key that is there twice: a reader may see the other one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated = next(key for key, number in Counter(key for key, _ in pairs).items() if number > 1)
        raise _fault("", f"has {one_line(repeated, 80)} twice")
    return found


def _joined(text: Any) -> Any:
    whole = isinstance(text, list) and all(isinstance(line, str) for line in text)
    return "\n".join(text) if whole else text


def _check(place: str, digest: Any, content: Any) -> None:
    """What is read in the file must be what counts: a digest of other text is refused."""
    if digest != digest_of(content):
        raise _fault(place, "has a digest that does not fit its text")


def _fault(place: str, problem: str) -> Fault:
    return Fault(FaultType.CONFIG, f"{LOCK_FILE}{place} {problem}; {_AGAIN}")
