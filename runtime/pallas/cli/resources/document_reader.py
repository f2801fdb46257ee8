"""Read the documents of `pallas apply` from files, folders or stdin, with the line of each key."""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal

from pallas.config.models import Where
from pallas.config.notes import Notes, no_such_key
from pallas.config.textfile import MAX_BYTES, read_text
from pallas.config.tree import Items, Leaf, Node, Table, plain
from pallas.config.yamlfile import read_documents
from pallas.model import ResourceKind

from .fleet_requests import Wrong
from .resource_documents import API_VERSION, API_VERSIONS
from .resource_kinds import MADE, NoSuchKind, kind_of

MAX_DOCUMENTS: Final = 1_000
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_TOP: Final = ("apiVersion", "kind", "metadata", "spec")
STDIN: Final = "stdin"


@dataclass(frozen=True, slots=True)
class ResourceDocument:
    """One thing in its desired state. ``spec`` is as its author wrote it."""

    kind: ResourceKind
    name: str
    spec: dict[str, Any] = field(repr=False)
    where: Where
    root: Table = field(repr=False)

    @property
    def title(self) -> str:
        """``agent/foo``."""
        return f"{self.kind}/{self.name}"

    def has(self, key: str) -> bool:
        """Return whether its spec has that key, in either spelling."""
        return any(_flat(said) == _flat(key) for said in self.spec)

    def line_of_name(self) -> Where:
        """The position of its name."""
        return _line(self.root, ("metadata", "name"))

    def line_of(self, key: str) -> Where:
        """Return the position of a dotted key of the spec, or of its nearest parent."""
        return _line(self.root, ("spec", *key.split("."))) if key else self.where


def read(sources: Sequence[str], notes: Notes) -> tuple[list[ResourceDocument], list[str]]:
    """Read every document of the sources in order, with the files' names. Other mistakes go to ``notes``.

    Raises Wrong when a source cannot be read at all.
    """
    found: list[ResourceDocument] = []
    names: list[str] = []
    for name, text in _texts(sources):
        names.append(name)
        nodes, _ = read_documents(text, name, notes)
        for node in nodes:
            for document in _documents(node, notes):
                found.append(document)
                if len(found) > MAX_DOCUMENTS:
                    raise Wrong(f"more than {MAX_DOCUMENTS} documents at once; apply them in parts")
    return found, names


def _texts(sources: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file."""
    for source in sources:
        if source == "-":
            yield STDIN, _stdin()
            continue
        path = Path(source)
        if path.is_dir():
            inside = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES and each.is_file())
            if not inside:
                raise Wrong(f"{source}: holds no file that ends with {', '.join(_SUFFIXES)}")
            for each in inside:
                yield str(each), _file(each)
        else:
            yield source, _file(path)


def _stdin() -> str:
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise Wrong(f"{STDIN}: is larger than {MAX_BYTES // 1024} KiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Wrong(f"{STDIN}: is not UTF-8") from error


def _file(path: Path) -> str:
    notes = Notes()
    text = read_text(path, str(path), notes)
    if text is None:
        raise Wrong("\n".join(str(mistake) for mistake in notes.sorted([])))
    return text


def _documents(node: Node, notes: Notes) -> Iterator[ResourceDocument]:
    if isinstance(node, Items):
        for item in node.items:
            yield from _documents(item, notes)
        return
    if not isinstance(node, Table):
        notes.error(node.where, "", "is not a document", "write apiVersion, kind, metadata and spec")
        return
    kind = _kind(node, notes)
    if kind == "list":
        items = node.get("items")
        if not isinstance(items, Items):
            notes.error(_line(node, ("items",)), "items", "must be a list of documents")
            return
        for item in items.items:
            yield from _documents(item, notes)
        return
    for key, entry in node.entries.items():
        if key not in (*_TOP, "status"):
            notes.error(entry.where, key, no_such_key(key, _TOP))
    name = _name(node, notes)
    spec = _spec(node, notes)
    if name and kind and spec is not None:  # Even if something else is wrong: all mistakes are reported.
        yield ResourceDocument(kind, name, spec, node.where, node)


def _kind(node: Table, notes: Notes) -> ResourceKind | Literal["list", ""]:
    given = node.get("apiVersion")
    version = plain(given) if given is not None else None
    if version not in API_VERSIONS:
        problem = "is missing" if given is None else "is not a known version"
        notes.error(_line(node, ("apiVersion",)), "apiVersion", problem, f"write apiVersion: {API_VERSION}")
    given = node.get("kind")
    word = plain(given) if given is not None else None
    if isinstance(word, str) and word.lower() == "list":
        return "list"
    if not isinstance(word, str):
        notes.error(
            _line(node, ("kind",)),
            "kind",
            "is missing" if given is None else "must be a word",
            f"allowed: {', '.join(MADE)}",
        )
        return ""
    try:
        found = kind_of(word, MADE).word
    except NoSuchKind as error:
        notes.error(_line(node, ("kind",)), "kind", str(error))
        return ""
    return next(kind for kind in MADE if kind == found)


def _name(node: Table, notes: Notes) -> str:
    metadata = node.get("metadata")
    if not isinstance(metadata, Table):
        notes.error(
            _line(node, ("metadata",)), "metadata", "must be a mapping", "write metadata: {name: NAME}"
        )
        return ""
    for key, entry in metadata.entries.items():
        if key != "name":
            notes.error(entry.where, f"metadata.{key}", no_such_key(key, ("name",)))
    name_node = metadata.get("name")
    name = plain(name_node) if name_node is not None else None
    if isinstance(name, str) and name:
        return name
    problem = "is missing" if name_node is None else "must be text"
    notes.error(_line(node, ("metadata", "name")), "metadata.name", problem, "quote it" if name_node else "")
    return ""


def _spec(node: Table, notes: Notes) -> dict[str, Any] | None:
    spec = node.get("spec")
    if spec is None or (isinstance(spec, Leaf) and spec.value is None):
        return {}
    if not isinstance(spec, Table):
        notes.error(_line(node, ("spec",)), "spec", "must be a mapping")
        return None
    return {key: _json_ready(entry.node, f"spec.{key}", notes) for key, entry in spec.entries.items()}


def _flat(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def _json_ready(node: Node, key: str, notes: Notes) -> Any:
    """Convert the value to JSON; a date becomes the text that was written."""
    match node:
        case Table(entries):
            return {name: _json_ready(entry.node, f"{key}.{name}", notes) for name, entry in entries.items()}
        case Items(items):
            return [_json_ready(item, f"{key}[{number}]", notes) for number, item in enumerate(items)]
        case Leaf(value, raw, where):
            if isinstance(value, date):
                return raw
            if isinstance(value, float) and not math.isfinite(value):
                notes.error(where, key, "is not a JSON number", "quote it if it is meant as text")
                return None
            if isinstance(value, bytes | set):
                notes.error(where, key, "is a value of another type", "write text, a list or a mapping")
                return None
            return value


def _line(node: Node, keys: Sequence[str]) -> Where:
    """Return the position of the last of the keys that exists."""
    where = node.where
    for key in keys:
        found = _entry(node, key)
        if found is None:
            return where
        where, node = found
    return where


def _entry(node: Node, key: str) -> tuple[Where, Node] | None:
    name, _, rest = key.partition("[")
    if isinstance(node, Table):
        flat = _flat(name)
        for said, entry in node.entries.items():
            if said == name or _flat(said) == flat:
                return _item(entry.where, entry.node, rest)
    if isinstance(node, Items) and name.isdecimal() and int(name) < len(node.items):
        return _item(node.items[int(name)].where, node.items[int(name)], rest)
    return None


def _item(where: Where, node: Node, rest: str) -> tuple[Where, Node]:
    """Return the third item for ``prompts[2]``."""
    number = rest.rstrip("]")
    if isinstance(node, Items) and number.isdecimal() and int(number) < len(node.items):
        return node.items[int(number)].where, node.items[int(number)]
    return where, node
