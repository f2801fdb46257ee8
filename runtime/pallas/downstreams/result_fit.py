"""The SDK's models of results, and values that fit them once their unfit parts are left out."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal, get_args

from mcp_types import methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, KNOWN_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from pydantic import BaseModel, ValidationError

from pallas.safe_text import one_line

type Kind = Literal["tool", "prompt", "resource", "resource template", "content", "server", "result"]

MAX_FINDINGS: Final = 100
"""Findings of one result that are kept; those beyond are counted."""
_ROUNDS: Final = 50
_Models = tuple[type[BaseModel], ...]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something of a server's result that was left out or changed. All texts are one line, and sanitised."""

    kind: Kind
    name: str
    """Its name, or its place in the list, counted from 1, if it has none; empty for a whole result."""
    why: str
    """What is wrong, as the end of a sentence: ``its inputSchema is a list, not an object``."""
    part: str = ""
    """The part that was left out or changed. If it is empty, all of it was left out."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.why}" if self.name else f"{self.kind}: {self.why}"


@dataclass(slots=True)
class Findings:
    """Collects what was left out of one result; at most ``MAX_FINDINGS`` are kept."""

    kept: list[LeftOut] = field(default_factory=list)
    more: int = 0
    """How many are beyond."""

    def add(self, kind: Kind, name: str, why: str, part: str = "") -> None:
        """Keep a finding, or count it."""
        if len(self.kept) < MAX_FINDINGS:
            self.kept.append(LeftOut(kind, one_line(name, 100), one_line(why, 300), one_line(part, 100)))
        else:
            self.more += 1


@dataclass(frozen=True, slots=True)
class Fitted:
    """A value that fits, without its unfit parts; no value if it cannot be made to."""

    value: dict[str, Any] | None
    why: str = ""
    """Why there is no value."""
    dropped: Mapping[str, str] = field(default_factory=dict)
    """The parts that were left out, with the reasons."""


def fitted(models: Sequence[type[BaseModel]], value: dict[str, Any]) -> Fitted:
    """Leave out of a value the parts that the models do not accept, the smallest ones that can be.

    A part that must be there is a reason why it does not fit.
    """
    dropped: dict[str, str] = {}
    for _ in range(_ROUNDS):
        try:
            for model in models:
                model.model_validate(value, by_name=False).model_dump(mode="json")
            return Fitted(value, dropped=dropped)
        except ValidationError as error:
            wrong = _wrong_parts(error, value, dropped)
        except (ValueError, RecursionError) as error:
            return Fitted(None, f"cannot be read ({one_line(str(error), 100)})")
        if () in wrong:
            return Fitted(None, wrong[()])
        value = _without(value, wrong)
        dropped |= {".".join(map(str, path)): why for path, why in wrong.items()}
    return Fitted(None, "does not fit")


def _wrong_parts(
    error: ValidationError, value: Any, dropped: Mapping[str, str]
) -> dict[tuple[str | int, ...], str]:
    """Return the reasons by the paths of the parts; the path of a missing part is that of its holder."""
    found: dict[tuple[str | int, ...], str] = {}
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        path: list[str | int] = []
        here = value
        for step in each["loc"]:
            if isinstance(here, dict) and step in here:
                here = here[str(step)]
            elif isinstance(here, list) and isinstance(step, int) and step < len(here):
                here = here[step]
            else:
                break  # a member of a union, or a part that is missing
            path.append(step)
        part = ".".join(map(str, path))
        if each["type"] != "missing":
            why = f"its {part} {each['msg'].removeprefix('Input ')}" if part else each["msg"]
        elif part:
            why = f"its {part} has no {each['loc'][-1]}"
        else:
            field_name = str(each["loc"][-1])
            why = dropped.get(field_name) or f"it has no {field_name}"
        found.setdefault(tuple(path), why)
    return found


def _without(value: Any, paths: Iterable[tuple[str | int, ...]]) -> Any:
    """Return a copy of the value without the parts at those paths."""
    below: dict[str | int, list[tuple[str | int, ...]]] = {}
    for head, *rest in paths:
        below.setdefault(head, []).append(tuple(rest))
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    kept = [
        (key, _without(each, below[key]) if key in below else each)
        for key, each in pairs
        if () not in below.get(key, ())
    ]
    return dict(kept) if isinstance(value, dict) else [each for _, each in kept]


def known_version(version: str | None) -> str:
    """Return the version if the SDK knows it, else the newest one with a handshake."""
    return version if version in KNOWN_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION


def has_handshake(version: str) -> bool:
    """Whether a connection of that protocol version begins with ``initialize``."""
    return version in HANDSHAKE_PROTOCOL_VERSIONS


@cache
def result_models(method: str, version: str) -> _Models:
    """Return the models that the SDK validates a method's complete result with; none for an unknown one."""
    # The SDK reads the answer to server/discover without the model of a version.
    row = methods.SERVER_RESULTS.get((method, version)) if method != "server/discover" else None
    rows = (row, methods.MONOLITH_RESULTS.get(method))
    return tuple(_complete(each) for each in rows if each is not None)


def refusal(method: str, version: str, result: dict[str, Any]) -> str | None:
    """Return why the SDK refuses the result; None if it does not."""
    try:
        if method != "server/discover" and (method, version) in methods.SERVER_RESULTS:
            methods.parse_server_result(method, version, result)
        else:
            for model in result_models(method, version):
                model.model_validate(result, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return f"its {'.'.join(map(str, first['loc']))} {first['msg'].removeprefix('Input ')}"
    except ValueError as error:
        return f"it cannot be read ({error})"
    return None


def _complete(row: Any) -> type[BaseModel]:
    arms: tuple[type[BaseModel], ...] = get_args(row) or (row,)
    return next(arm for arm in arms if "input_requests" not in arm.model_fields)


@cache
def item_models(method: str, version: str, key: str) -> _Models:
    """Return the models of the items of a result's list, such as its tools."""
    return tuple(arm for model in result_models(method, version) for arm in _items_of(model, key))


@cache
def block_models(version: str) -> Mapping[str, _Models]:
    """Return the models of each type of content."""
    found: dict[str, _Models] = {}
    for arm in item_models("tools/call", version, "content"):
        (kind,) = get_args(arm.model_fields["type"].annotation)
        found[kind] = (*found.get(kind, ()), arm)
    return found


@cache
def resource_models(version: str, key: Literal["text", "blob"]) -> _Models:
    """Return the models of the contents of a resource that is text, or data."""
    arms = item_models("resources/read", version, "contents")
    return tuple(arm for arm in arms if key in arm.model_fields)


def _items_of(model: type[BaseModel], key: str) -> _Models:
    annotation = next(
        each.annotation for name, each in model.model_fields.items() if (each.alias or name) == key
    )
    (items,) = get_args(annotation)
    return get_args(items) or (items,)


def kind_of(value: Any) -> str:
    """Return what a JSON value is, in words: ``a list``."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
    return "an object"


def as_json(value: Any) -> str:
    """Return a value as JSON text; what it is, in words, if that is not possible."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return f"[{kind_of(value)} that cannot be written]"
