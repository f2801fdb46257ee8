"""Types of the fields of specs. Each check raises an error for the author."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

from pallas.config.network import secret_in, url_problem
from pallas.config.notes import no_such_key
from pallas.model import Fault, FaultType, ResourceKind
from pallas.safe_text import one_line, sanitize

from .secret_references import references_in

MAX_NAME: Final = 100
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")

MAX_PROMPT: Final = 200_000
MAX_DESCRIPTION: Final = 2_000
MAX_VALUE: Final = 64 * 1024
MAX_JSON: Final = 64 * 1024
MAX_ITEMS: Final = 100
MAX_COUNT: Final = 1_000_000_000

_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_SERVER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_MODEL: Final = re.compile(r"[^\s\x00-\x20\x7f?$][^\s\x00-\x20\x7f]{0,254}")

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]


def check_name(kind: ResourceKind, name: object) -> str:
    """The name, if it follows the rules. Raises Fault (PROTOCOL) with ``data["key"]`` ``metadata.name``."""
    rule = f"a-z, 0-9 and . _ - after the first, at most {MAX_NAME} characters"
    if not isinstance(name, str) or not name:
        raise wrong("name", f"is missing; write {rule}")
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        better = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:MAX_NAME]
        near = f"; did you mean {better}?" if better and _NAME.fullmatch(better) else ""
        raise wrong("name", f"{one_line(name, 60)!r} is not a name; allowed: {rule}{near}")
    if kind == "agent" and (name == "system" or name.startswith(("agent-", "system."))):
        raise wrong("name", f"{name} is reserved; allowed: any name but agent-*, system and system.*")
    return name


def slug(name: str) -> str:
    """The name as the registry publishes it (PR-14)."""
    return name.replace("_", "-")


def wrong(key: str, problem: str) -> Fault:
    """A Fault (PROTOCOL) with the dotted key in its message and in its data."""
    shown = one_line(key, 120)
    return Fault(FaultType.PROTOCOL, f"{shown}: {problem}", data={"key": shown})


def unknown(key: str, name: str, known: Iterable[str]) -> Fault:
    """The Fault for an unknown key. It names the nearest known key, and all of them."""
    return wrong(key, no_such_key(name, known))


def _clean(text: str) -> str:
    return sanitize(text)


def _line(text: str) -> str:
    return one_line(text, MAX_DESCRIPTION)


def _json_size(value: dict[str, Any]) -> dict[str, Any]:
    try:
        size = len(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise ValueError("must be plain JSON") from None
    if size > MAX_JSON:
        raise ValueError(f"is larger than {MAX_JSON // 1024} KiB as JSON")
    return value


def _url(text: str) -> str:
    if not text:  # as it is shown where there is none
        return text
    if problem := url_problem(text):
        raise ValueError(problem)
    if secret := secret_in(text):
        raise ValueError(f"holds {secret}, which every reader would see; use a secret")
    return text


def _model(text: str) -> str:
    if not _MODEL.fullmatch(text):
        raise ValueError("is not a model; write its name at the provider, without spaces")
    return text


def _key_name(text: str) -> str:
    if not _KEY.fullmatch(text):
        raise ValueError("is not a key of a secret; allowed: letters, digits and _ . - after the first")
    return text


def _reference(value: Any) -> Any:
    """``{name: x}`` and ``{id: x}`` as ``x``."""
    if isinstance(value, Mapping):
        names = [key for key in ("name", "id") if value.get(key)]
        if not names or set(value) - {"name", "id"}:
            raise ValueError("must be a name, {name: NAME} or {id: ID}")
        return value[names[0]]
    return value


def _secret_reference(value: Any) -> Any:
    """``SECRET/KEY`` as ``{name: SECRET, key: KEY}``."""
    if isinstance(value, str):
        name, slash, key = value.partition("/")
        if not (name and slash and key):
            raise ValueError("must be SECRET/KEY, or {name: SECRET, key: KEY}")
        return {"name": name, "key": key}
    return value


def _server_name(text: str) -> str:
    if not _SERVER.fullmatch(text):
        raise ValueError("is not a name for a server; allowed: letters, digits and . _ - after the first")
    return text


def _header_name(text: str) -> str:
    if not _HEADER.fullmatch(text):
        raise ValueError("is not a name for a header")
    return text


def _header_value(text: str) -> str:
    if len(text) > 8_192 or not text.isprintable() or not text.isascii():
        raise ValueError("must be one line of ASCII, at most 8192 characters")
    references_in(text)
    return text


def _repeats(count: int) -> int:
    if count == 1:
        raise ValueError("would stop at the first call; allowed: 0 (off), or 2 or more")
    return count


def named(key: str) -> Callable[[Any], Any]:
    """A converter from a plain text to an object that has it under ``key``."""
    return lambda value: {key: value} if isinstance(value, str) else value


Repeats = Annotated[int, Field(ge=0, le=MAX_COUNT), AfterValidator(_repeats)]
Line = Annotated[str, Field(max_length=MAX_DESCRIPTION), AfterValidator(_line)]
Text = Annotated[str, Field(max_length=MAX_PROMPT), AfterValidator(_clean)]
Reference = Annotated[str, BeforeValidator(_reference), Field(max_length=200)]
JsonObject = Annotated[dict[str, Any], AfterValidator(_json_size)]
Url = Annotated[str, Field(max_length=2_000), AfterValidator(_url)]
ModelName = Annotated[str, AfterValidator(_model)]
KeyName = Annotated[str, AfterValidator(_key_name)]
ServerName = Annotated[str, AfterValidator(_server_name)]
HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderValue = Annotated[str, AfterValidator(_header_value)]
SECRET_REFERENCE: Final = BeforeValidator(_secret_reference)
"""``SECRET/KEY`` stands for ``{name: SECRET, key: KEY}``."""
