"""Who changed something over the REST API or was kept from something, written down."""

import logging

from starlette.requests import Request
from starlette.responses import Response

from pallas.access.grants import CHANGED, DENIED
from pallas.model import Fault, Principal
from pallas.model.safe_text import handle_start, one_line
from pallas.surfaces.control.token_middleware import path_shown

from .endpoints import RestEndpoint

log = logging.getLogger("pallas.audit")


def audit(
    request: Request,
    endpoint: RestEndpoint,
    principal: Principal | None,
    answer: Response,
    fault: Fault | None,
) -> None:
    """Write down what became of a request: nothing for one that only looked and was allowed to.

    Never a whole handle, a body, a query or a token: the method, the path, who asked and from where. A grant
    that was missing is told by who missed it.
    """
    status = answer.status_code
    denied = status in (401, 403)
    if denied and fault is not None and "grant" in fault.data:
        return
    if not denied and request.method in ("GET", "HEAD", "OPTIONS"):
        return
    outcome = DENIED if denied else CHANGED if status < 400 else "failed"
    who = principal.id if principal is not None else "nobody"
    made = answer.headers.get("location", "").rpartition("/")[2]
    path = path_shown(request.scope["path"])
    target = str(next(iter(request.path_params.values()), made))
    log.log(
        logging.WARNING if denied else logging.INFO,
        "api: %s: %s %s by %s from %s (%d)",
        outcome,
        request.method,
        path,
        who,
        request.client.host if request.client is not None else "unknown",
        status,
        extra={
            "audit": outcome,
            "principal": who,
            "verb": endpoint.verb or request.method.lower(),
            "resource": endpoint.resource or endpoint.path.split("/")[1],
            "target": handle_start(target) if _by_handle(endpoint) else one_line(target, 200),
            "path": path,
            "status": status,
        },
    )


def _by_handle(endpoint: RestEndpoint) -> bool:
    """Whether its path names a thread or a task."""
    return endpoint.path.startswith(("/threads/", "/tasks/"))
