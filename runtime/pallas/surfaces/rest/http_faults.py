"""A Fault as an HTTP answer: its status, headers and body."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

from pallas.model import Fault, FaultType, codec
from pallas.model.redaction import redact_text
from pallas.model.refusals import REASON, RETRY_AFTER, not_found
from pallas.safe_text import one_line, sanitize

from ..request_problems import first_of, problem_of

MAX_MESSAGE: Final = 8_000

_BY_REASON: Final[Mapping[str, int]] = {
    "not_found": 404,
    "conflict": 409,
    "in_use": 409,
    "forbidden": 403,
    "unauthenticated": 401,
    "unprocessable": 422,
    "too_many": 429,
}
_BY_TYPE: Final[Mapping[FaultType, int]] = {
    FaultType.PROTOCOL: 400,
    FaultType.CONFIG: 400,
    FaultType.AUTH: 401,
    FaultType.TIMEOUT: 504,
    FaultType.TRANSPORT: 503,
    FaultType.UPSTREAM: 502,
    FaultType.INTERNAL: 500,
}
# Stages of an agent that cannot answer, as the kernel reports them (PI-17).
_UNABLE: Final = frozenset({"start", "crash-loop", "stopped", "health"})

HEADERS: Final[Mapping[str, str]] = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
"""The headers of every answer that is no stream."""


class HttpFault(Fault):
    """A Fault (PROTOCOL) of HTTP itself, with its own HTTP status."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(FaultType.PROTOCOL, message)
        self.status = status
        self.headers: Mapping[str, str] = dict(headers or {})


def nothing_here() -> Fault:
    """Return the Fault for a path that is not in the API."""
    return not_found("there is nothing under this path; GET /api/v1/openapi.json says what there is")


def status_of(fault: Fault, *, of_run: bool = False) -> int:
    """Return the HTTP status of a Fault; ``of_run`` marks one that a run ended with.

    For a run, AUTH is a failure between the agent and its provider or downstream, and another token of the
    caller would not help. PROTOCOL is an error of a worker or a server behind the agent, unless it names an
    error of the request: a key, or a message that does not fit the class of a typed handler.
    """
    if isinstance(fault, HttpFault):
        return fault.status
    if status := _BY_REASON.get(str(fault.data.get(REASON, ""))):
        return status
    if fault.type in (FaultType.UPSTREAM, FaultType.CONFIG) and fault.data.get("stage") in _UNABLE:
        return 503
    if of_run and fault.type is FaultType.AUTH:
        return 502
    if fault.of_agent and fault.type is FaultType.PROTOCOL and not _of_request(fault):
        return 502
    return _BY_TYPE[fault.type]


def _of_request(fault: Fault) -> bool:
    """Return whether the caller's own request is wrong."""
    return "key" in fault.data or fault.data.get("system") == "validation"


def headers_of(fault: Fault, status: int) -> dict[str, str]:
    """Return the headers of a status: ``WWW-Authenticate``, ``Retry-After``."""
    headers = dict(fault.headers) if isinstance(fault, HttpFault) else {}
    if status == 401:
        headers["www-authenticate"] = 'Bearer realm="pallas"'
    seconds = fault.data.get("retry_after", RETRY_AFTER if fault.type is FaultType.TRANSPORT else None)
    if isinstance(seconds, int | float) and status in (429, 503):
        headers["retry-after"] = str(max(1, math.ceil(seconds)))
    return headers


def body_of(fault: Fault) -> dict[str, Any]:
    """Return the body, masked and sanitised: an error may repeat foreign text (PR-36)."""
    body = fault.to_body()
    return {**body, "error": _shown(fault), "data": codec.visible(body["data"])}


def _shown(fault: Fault) -> str:
    """Return a Fault's message for the caller."""
    # `headers.Authorization: …`: a field's path is no secret, and no header's value follows it.
    head = f"{fault.data.get('key', '')}: "
    path = head if len(head) > 2 and fault.message.startswith(head) else ""
    return sanitize(path + redact_text(fault.message[len(path) :]), MAX_MESSAGE)


def answer(fault: Fault, *, of_run: bool = False) -> Response:
    """Return the whole answer; ``of_run`` as for ``status_of``."""
    status = status_of(fault, of_run=of_run)
    headers = {**HEADERS, **headers_of(fault, status)}
    return Response(codec.dumps(body_of(fault)), status, headers=headers, media_type="application/json")


def invalid(errors: Sequence[Any], body: Any = None) -> Fault:
    """Return pydantic's errors as a Fault (PROTOCOL) that names the field by its path.

    Repeats nothing of the value. ``body`` is the type that the body must have: a Fault for an unknown key
    names the keys that there are.
    """
    first = first_of(errors)
    where, *path = [str(part) for part in first.get("loc", ())] or [""]
    key = one_line(".".join(path), 200) if where in ("body", "query", "path", "header") else ""
    problem = problem_of(first, body if where == "body" else None, path)
    if where == "query" and first.get("type") != "missing":
        problem += ", or leave it out"
    text = f"{key}: {problem}" if key else f"the {where or 'request'}: {problem}"
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Fault(FaultType.PROTOCOL, text + more, data={"key": key} if key else {})
