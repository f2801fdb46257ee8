"""What an MCP server says of itself, as JSON documents with digests."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any, Final

from pallas.model.redaction import redact_text
from pallas.model.tool_lock import LockedKind
from pallas.safe_text import encodable

type Document = dict[str, Any]
type Items = Mapping[str, Document]

_MAX_DEPTH: Final = 64


@dataclass(frozen=True, slots=True)
class Surface:
    """The instructions of a server and its lists, by name or URI. Secrets are masked."""

    instructions: str = ""
    tools: Items = field(default_factory=dict)
    prompts: Items = field(default_factory=dict)
    resources: Items = field(default_factory=dict)
    resource_templates: Items = field(default_factory=dict)

    @property
    def lists(self) -> Mapping[LockedKind, Items]:
        """The lists by what is in them."""
        return {
            "tool": self.tools,
            "prompt": self.prompts,
            "resource": self.resources,
            "resource template": self.resource_templates,
        }

    @property
    def digest(self) -> str:
        """Of everything in it."""
        return digest_of(self._document)

    @property
    def size(self) -> int:
        """Its bytes as JSON."""
        return len(_json(self._document))

    @property
    def _document(self) -> Document:
        return {each.name: getattr(self, each.name) for each in fields(self)}


def _json(document: Any) -> str:
    text: str = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text


def digest_of(document: Any) -> str:
    """Return the SHA-256 of the document's canonical JSON: sorted keys, no blanks."""
    return f"sha256:{sha256(_json(document).encode()).hexdigest()}"


def tool_items(tools: Iterable[Any]) -> dict[str, Document]:
    """Return tools of the protocol by name: title, description, schemas and annotations."""
    return _items((tool.name, _tool(tool)) for tool in tools)


def prompt_items(prompts: Iterable[Any]) -> dict[str, Document]:
    """Return prompts of the protocol by name: title, description and arguments."""
    return _items((each.name, _without_none(each, "title", "description", "arguments")) for each in prompts)


def resource_items(resources: Iterable[Any]) -> dict[str, Document]:
    """Return resources of the protocol by URI: name, title, description and type."""
    keys = ("name", "title", "description", "mime_type")
    return _items((str(each.uri), _without_none(each, *keys)) for each in resources)


def template_items(templates: Iterable[Any]) -> dict[str, Document]:
    """Return resource templates of the protocol by their URI: name, title, description and type."""
    keys = ("name", "title", "description", "mime_type")
    return _items((each.uri_template, _without_none(each, *keys)) for each in templates)


def item_name(name: str) -> str:
    """Return a name or a URI as the lock has it: a URI may hold a token."""
    shown: str = encodable(redact_text(name))
    return shown


def masked(value: Any, depth: int = 0) -> Any:
    """Return a JSON value with secrets masked, in keys too; what is nested too deeply becomes its text."""
    if isinstance(value, str):
        return encodable(redact_text(value))
    if depth >= _MAX_DEPTH and isinstance(value, Mapping | list | tuple):
        return redact_text(repr(value))
    if isinstance(value, Mapping):
        return {item_name(str(key)): masked(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [masked(each, depth + 1) for each in value]
    return value


def _items(found: Iterable[tuple[str, Document]]) -> dict[str, Document]:
    """Two things of one name that differ are both there: the second must not hide behind the first."""
    items: dict[str, Document] = {}
    for given, document in found:
        own = name = item_name(given)
        number = 1
        while name in items and items[name] != document:
            number += 1
            name = f"{own} (#{number})"
        items[name] = document
    return items


def _tool(tool: Any) -> Document:
    document = _without_none(tool, "title", "description", "annotations")
    document["inputSchema"] = masked(tool.input_schema or {})
    if tool.output_schema is not None:
        document["outputSchema"] = masked(tool.output_schema)
    return document


def _without_none(item: Any, *keys: str) -> Document:
    given = item.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(keys))
    return {key: masked(value) for key, value in given.items() if value not in ("", {}, [])}
