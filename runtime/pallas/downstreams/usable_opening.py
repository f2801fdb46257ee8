"""Answers to ``initialize`` and ``server/discover`` that the SDK accepts."""

import re
from collections.abc import Mapping
from typing import Any, Final

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from .result_fit import Findings, as_json, kind_of
from .usable_lists import MAX_TEXT

_Object = dict[str, Any]

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_CAPABILITIES: Final = ("tools", "prompts", "resources", "logging", "completions")
_UNKNOWN: Final = "unknown"


def usable_initialize(result: _Object, findings: Findings) -> _Object:
    """Return the answer to ``initialize`` with a version that the SDK knows, and its name and version."""
    return {
        **result,
        "protocolVersion": _version(result.get("protocolVersion"), findings),
        "serverInfo": _info(result.get("serverInfo"), findings),
        "capabilities": _capabilities(result.get("capabilities"), findings),
        **_instructions(result, findings),
    }


def usable_discovery(result: _Object, findings: Findings) -> _Object:
    """Return the answer to ``server/discover``; without a version in it, it stays unfit."""
    versions = result.get("supportedVersions")
    made = {
        **result,
        "capabilities": _capabilities(result.get("capabilities"), findings),
        **_instructions(result, findings),
    }
    if isinstance(versions, str):
        findings.add("server", "", "its supportedVersions are a text, not a list", "supportedVersions")
        made["supportedVersions"] = [versions]
    return made


def _version(said: Any, findings: Findings) -> str:
    """Return the newest version with a handshake that is not newer than the one the server said."""
    if said in HANDSHAKE_PROTOCOL_VERSIONS:
        return str(said)
    if not isinstance(said, str):
        what = "it does not say its protocol version"
        taken = LATEST_HANDSHAKE_VERSION
    else:
        what = f"its protocol version {said!r} is not known"
        older = (
            [each for each in HANDSHAKE_PROTOCOL_VERSIONS if each <= said] if _DATE.fullmatch(said) else None
        )
        taken = LATEST_HANDSHAKE_VERSION if older is None else (*HANDSHAKE_PROTOCOL_VERSIONS[:1], *older)[-1]
    findings.add("server", "", f"{what}; it is taken as {taken}", "protocolVersion")
    return taken


def _info(said: Any, findings: Findings) -> _Object:
    info = said if isinstance(said, dict) else {"name": said} if isinstance(said, str) else {}
    if info is not said:
        what = "is missing" if said is None else f"is {kind_of(said)}, not an object"
        findings.add("server", "", f"its serverInfo {what}", "serverInfo")
    made = dict(info)
    for key in ("name", "version"):
        value = info.get(key)
        if isinstance(value, str):
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        made[key] = as_json(value) if is_number else _UNKNOWN
        if info is said or key in info:
            what = f"has no {key}" if value is None else f"has a {key} that is {kind_of(value)}, not a text"
            findings.add("server", "", f"its serverInfo {what}", f"serverInfo.{key}")
    return made


def _instructions(result: _Object, findings: Findings) -> _Object:
    """Return the instructions if they must be cut: they go to a model with each turn."""
    said = result.get("instructions")
    if not isinstance(said, str) or len(said) <= MAX_TEXT:
        return {}
    why = f"its instructions have {len(said):,} characters; the first {MAX_TEXT:,} are used"
    findings.add("server", "", why, "instructions")
    return {"instructions": said[:MAX_TEXT]}


def _capabilities(said: Any, findings: Findings) -> _Object:
    """Return the capabilities as objects. A server that does not say what it has is asked for its tools."""
    if isinstance(said, dict):
        return {key: _capability(key, value, findings) for key, value in said.items() if value is not False}
    named = [each for each in said if each in _CAPABILITIES] if isinstance(said, list) else []
    what = (
        "it does not say its capabilities"
        if said is None
        else f"its capabilities are {kind_of(said)}, not an object"
    )
    findings.add("server", "", f"{what}; it is taken to have {', '.join(named) or 'tools'}", "capabilities")
    return {each: {} for each in named or ("tools",)}


def _capability(key: str, value: Any, findings: Findings) -> Any:
    if key not in _CAPABILITIES or value is None or isinstance(value, Mapping):
        return value
    findings.add(
        "server", "", f"its capabilities.{key} is {kind_of(value)}, not an object", f"capabilities.{key}"
    )
    return {}
