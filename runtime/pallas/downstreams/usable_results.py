"""Results that the SDK accepts, made of what servers really send.

One unfit thing in a result would cost all of it: the SDK validates a result as a whole. Here it costs itself,
and there is a finding that names it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_types import methods
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from pallas.bounds.message_nodes import too_many_parts
from pallas.safe_text import one_line

from .result_fit import (
    Findings,
    LeftOut,
    fitted,
    has_handshake,
    kind_of,
    known_version,
    refusal,
    result_models,
)
from .usable_content import usable_call, usable_prompt, usable_reading
from .usable_lists import LISTS, usable_list
from .usable_opening import usable_discovery, usable_initialize

_MAX_VALUES: Final = 100
"""Values of one completion, as the protocol has it."""
_MAX_TTL_MS: Final = 1 << 53
_CONTENT: Final = {"tools/call": "content", "prompts/get": "messages", "resources/read": "contents"}

_Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class UsableResult:
    """A result that the SDK accepts, or none with the ``problem``."""

    result: dict[str, Any] | None
    findings: tuple[LeftOut, ...] = ()
    """What was left out or changed, at most 100."""
    more: int = 0
    """How many findings there are beyond those."""
    output_schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The output schemas of the tools of ``tools/list`` by their names; the result has none."""
    problem: str = ""
    """Why there is no result, as the end of a sentence: ``it is a list, not an object``."""


def usable_result(method: str, result: Any, version: str | None = None) -> UsableResult:
    """Return a server's raw result as the SDK accepts it, with what was left out; never raises.

    ``method`` is that of the request, ``version`` the negotiated protocol version; it does not matter for
    ``initialize`` and ``server/discover``. The given result stays as it is. A result that fits is returned
    unchanged, except that tools lose their output schema. Results of methods that the SDK does not know, and
    those that ask for input, are not changed.
    """
    findings = Findings()
    try:
        made, schemas = _made(method, known_version(version), result, findings)
    except _NotUsable as why:
        return UsableResult(None, tuple(findings.kept), findings.more, problem=one_line(str(why), 300))
    except RecursionError:
        return UsableResult(None, problem="it is nested too deep")
    return UsableResult(made, tuple(findings.kept), findings.more, schemas)


class _NotUsable(Exception):
    """A result of which nothing can be used."""


def _made(method: str, version: str, result: Any, findings: Findings) -> tuple[_Object, dict[str, _Object]]:
    if not isinstance(result, dict) and (whole := _wrapped(method, result)) is not None:
        findings.add("result", "", f"it is {kind_of(result)}, not an object")
        result = whole
    if not isinstance(result, dict):
        raise _NotUsable(f"it is {kind_of(result)}, not an object")
    if method not in LISTS and (problem := too_many_parts(result)) is not None:
        raise _NotUsable(problem)
    if method in ("initialize", "server/discover"):
        version = LATEST_HANDSHAKE_VERSION
    elif method not in LISTS and refusal(method, version, result) is None:
        return result, {}
    schemas: dict[str, _Object] = {}
    made = _cacheable(method, version, _complete(method, version, result, findings), findings)
    match method:
        case "initialize":
            made = usable_initialize(made, findings)
        case "server/discover":
            made = usable_discovery(made, findings)
        case "tools/call":
            made = usable_call(version, made, findings)
        case "prompts/get":
            made = usable_prompt(version, made, findings)
        case "resources/read":
            made = usable_reading(version, made, findings)
        case "completion/complete":
            made = _completed(made, findings)
        case _ if method in LISTS:
            made, schemas = usable_list(method, version, made, findings)
    if refusal(method, version, made) is None:
        return made, schemas
    fit = fitted(result_models(method, version), made)
    if fit.value is None:
        raise _NotUsable(fit.why)
    for part, why in fit.dropped.items():
        findings.add("server" if method in ("initialize", "server/discover") else "result", "", why, part)
    if (problem := refusal(method, version, fit.value)) is not None:
        raise _NotUsable(problem)
    return fit.value, schemas


def _wrapped(method: str, result: Any) -> _Object | None:
    """Return the object that a bare value was meant to be; None if it says nothing."""
    if method in LISTS and isinstance(result, list):
        return {LISTS[method][0]: result}
    if method != "tools/call" or result is None or isinstance(result, bool):
        return None
    is_content = isinstance(result, list) and all(isinstance(each, dict) for each in result)
    return {"content": result if is_content else [result]}


def _complete(method: str, version: str, result: _Object, findings: Findings) -> _Object:
    """Return the result with a type; raise _NotUsable if it asks for input in an unknown way."""
    kind = result.get("resultType")
    asks = kind == "input_required" and method in methods.INPUT_REQUIRED_METHODS
    if has_handshake(version) or (isinstance(kind, str) and not asks):
        return result
    if asks and (_CONTENT[method] not in result or {"inputRequests", "requestState"} & result.keys()):
        raise _NotUsable(f"it asks for input, but {refusal(method, version, result)}")
    if kind is not None:
        what = "input_required, but it asks for nothing" if asks else f"{kind_of(kind)}, not a text"
        findings.add("result", "", f"its resultType is {what}", "resultType")
    return {**result, "resultType": "complete"}


def _cacheable(method: str, version: str, result: _Object, findings: Findings) -> _Object:
    """Return the result with what the protocol wants to know for caches; nothing is cached without it."""
    if has_handshake(version) or method not in methods.CACHEABLE_METHODS:
        return result
    made = dict(result)
    ttl: Any = result.get("ttlMs")
    scope = result.get("cacheScope")
    is_whole = (isinstance(ttl, int) and not isinstance(ttl, bool)) or (
        isinstance(ttl, float) and ttl.is_integer()
    )
    if not is_whole or not 0 <= ttl < _MAX_TTL_MS:
        made["ttlMs"] = 0
        if ttl is not None:
            findings.add("result", "", "its ttlMs is not a whole number of at least 0", "ttlMs")
    if scope not in ("public", "private"):
        made["cacheScope"] = "private"
        if scope is not None:
            findings.add("result", "", "its cacheScope is neither public nor private", "cacheScope")
    return made


def _completed(result: _Object, findings: Findings) -> _Object:
    """Return the result of ``completion/complete`` with at most as many values as the protocol allows."""
    said = result.get("completion")
    completion = said if isinstance(said, dict) else {}
    values = completion.get("values")
    if not isinstance(values, list):
        findings.add(
            "result", "", f"its completion.values are {kind_of(values)}, not a list", "completion.values"
        )
        values = []
    elif len(values) > _MAX_VALUES:
        findings.add(
            "result", "", f"only {_MAX_VALUES} of its {len(values):,} values are taken", "completion.values"
        )
    return {**result, "completion": {**completion, "values": values[:_MAX_VALUES]}}
