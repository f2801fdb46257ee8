"""A route of the API: it checks the caller and its grants first, then reads the body, then does the work."""

import logging
from collections.abc import Callable, Coroutine, Iterator
from inspect import isawaitable
from typing import Any, Final

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pallas.access.grants import CHANGED, DENIED
from pallas.model import Fault, FaultType, Principal
from pallas.safe_text import handle_start, one_line
from pallas.surfaces.control.token_middleware import path_shown
from pallas.surfaces.rest.rest_parts import RestParts

from . import http_faults
from .endpoints import ENDPOINTS, RestEndpoint
from .request_body import JsonRequest, expect_json, expect_query

audit_log = logging.getLogger("pallas.audit")

log = logging.getLogger(__name__)

PRINCIPAL: Final = "pallas.rest.principal"
"""The scope's key for the caller, for routes."""
HEAD: Final = "pallas.rest.head"
"""The scope's key that marks a HEAD request."""
_BROKEN: Final = Fault(FaultType.INTERNAL, "the API failed; the fleet's log has the details")
_BY_PLACE: Final = {(each.method, each.path): each for each in ENDPOINTS}

type Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def audit(
    request: Request,
    endpoint: RestEndpoint,
    principal: Principal | None,
    answer: Response,
    fault: Fault | None,
) -> None:
    """Log the outcome of a request, except a read that was allowed.

    Logs the method, the path, the caller and its address; never a whole handle, a body, a query or a token.
    A missing grant is logged where it is found missing.
    """
    status = answer.status_code
    denied = status in (401, 403)
    if denied and fault is not None and "grant" in fault.data:
        return
    if not denied and request.method in ("GET", "HEAD", "OPTIONS"):
        return
    outcome = DENIED if denied else CHANGED if status < 400 else "failed"
    caller = principal.id if principal is not None else "nobody"
    new_id = answer.headers.get("location", "").rpartition("/")[2]
    path = path_shown(request.scope["path"])
    target = str(next(iter(request.path_params.values()), new_id))
    audit_log.log(
        logging.WARNING if denied else logging.INFO,
        "api: %s: %s %s by %s from %s (%d)",
        outcome,
        request.method,
        path,
        caller,
        request.client.host if request.client is not None else "unknown",
        status,
        extra={
            "audit": outcome,
            "principal": caller,
            "verb": endpoint.verb or request.method.lower(),
            "resource": endpoint.resource or endpoint.path.split("/")[1],
            "target": handle_start(target) if _by_handle(endpoint) else one_line(target, 200),
            "path": path,
            "status": status,
        },
    )


def _by_handle(endpoint: RestEndpoint) -> bool:
    """Return whether its path names a thread or a task."""
    return endpoint.path.startswith(("/threads/", "/tasks/"))


def principal_of(request: Request) -> Principal:
    """Return the caller of the request."""
    principal: Principal = request.scope[PRINCIPAL]
    return principal


class Routes:
    """Adds the routes of ``ENDPOINTS`` to an application; ``missing`` are those that were not added yet."""

    def __init__(self, app: FastAPI, parts: RestParts) -> None:
        self._app = app
        self.parts = parts
        self.missing = set(_BY_PLACE)

    def add[**P, T](
        self, method: str, path: str, summary: str, *, response: Any = None, status: int = 200, **more: Any
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Return a decorator: the function answers that endpoint. ``more`` as for FastAPI's own."""
        endpoint = _BY_PLACE[method, path]

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            self.missing.discard((method, path))
            kind = _guarded(endpoint, self.parts)
            documented = {**_responses(endpoint), **more.pop("responses", {})}
            name = function.__name__
            self._app.router.add_api_route(
                path,
                function,
                methods=[method],
                route_class_override=kind,
                response_model=response,
                status_code=status,
                summary=summary,
                operation_id=name,
                tags=[path.split("/")[1]],
                responses=documented,
                openapi_extra={
                    "x-pallas-permission": endpoint.permission,
                    "x-pallas-anonymous": endpoint.anonymous,
                },
                **more,
            )
            return function

        return decorate


def _guarded(endpoint: RestEndpoint, parts: RestParts) -> type[APIRoute]:
    class Guarded(APIRoute):
        """A route that checks the caller first, and answers every error with a Fault."""

        def get_route_handler(self) -> Handler:
            work, known = super().get_route_handler(), tuple(_query_of(self.dependant))
            body = next((each.field_info.annotation for each in self.dependant.body_params), None)

            async def handler(request: Request) -> Response:
                request = JsonRequest(request.scope, request.receive)
                principal: Principal | None = None
                fault: Fault | None = None
                try:
                    principal = await _known(request, parts)
                    request.scope[PRINCIPAL] = principal
                    if not endpoint.anonymous:
                        parts.grants.require_known(principal)
                    if endpoint.verb is not None:
                        name = str(request.path_params.get("name", ""))
                        parts.grants.require(principal, endpoint.verb, endpoint.resource, name)
                    expect_query(request, known)
                    if request.method in ("POST", "PUT", "PATCH"):
                        expect_json(request)
                    answer = await work(request)
                except ClientDisconnect:
                    raise
                except Exception as error:
                    fault = _fault_of(error, endpoint, body)
                    answer = http_faults.answer(fault)
                for name, value in http_faults.HEADERS.items():
                    answer.headers.setdefault(name, value)
                audit(request, endpoint, principal, answer, fault)
                return answer

            return handler

    return Guarded


def _query_of(dependant: Dependant) -> Iterator[str]:
    """The parameters in the query that a route takes."""
    yield from (field.alias for field in dependant.query_params)
    for each in dependant.dependencies:
        yield from _query_of(each)


async def _known(request: Request, parts: RestParts) -> Principal:
    found = parts.authenticate(request.scope)
    return await found if isawaitable(found) else found


def _fault_of(error: Exception, endpoint: RestEndpoint, body: Any) -> Fault:
    if isinstance(error, Fault):
        return error
    if isinstance(error, RequestValidationError):
        return http_faults.invalid(error.errors(), body)
    if isinstance(error, HTTPException):
        if isinstance(error.__cause__, Fault):  # FastAPI's exception for any invalid body
            return error.__cause__
        return http_faults.HttpFault(error.status_code, str(error.detail), error.headers)
    log.error("api: %s %s failed", endpoint.method, endpoint.path, exc_info=error)
    return _BROKEN


def _responses(endpoint: RestEndpoint) -> dict[int | str, dict[str, Any]]:
    """Return the other answers of an endpoint, for the document."""
    descriptions: dict[int, str] = {
        400: "The request is invalid; `data.key` names the part that is wrong",
        401: "No valid token was sent",
    }
    if endpoint.verb is not None:
        descriptions[403] = "The caller lacks a grant"
    if "{" in endpoint.path:
        descriptions[404] = "Not found, or it belongs to another caller"
    if endpoint.method in ("POST", "PUT", "PATCH"):
        descriptions |= {413: "Larger than 4 MiB", 415: "Not JSON"}
    if endpoint.method in ("POST", "PUT", "PATCH", "DELETE"):
        descriptions |= {
            409: "It exists already, is declared in a file, or is in use",
            422: "The request is valid, but cannot be done",
        }
    descriptions |= {503: "Try again later; see `Retry-After`"}
    # For models, FastAPI would build a validator each: half a second for all.
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/FaultBody"}}}
    every: dict[int | str, dict[str, Any]] = {
        status: {"description": text, "content": content} for status, text in sorted(descriptions.items())
    }
    every["default"] = {"description": "What went wrong", "content": content}
    return every
