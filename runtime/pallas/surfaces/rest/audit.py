"""Who changed something over the REST API or was kept from something, written down."""

import logging

from starlette.requests import Request

from pallas.model import Principal
from pallas.text import one_line

log = logging.getLogger(__name__)


def audit(request: Request, principal: Principal | None, status: int) -> None:
    """Write down what became of a request: nothing for one that only looked and was allowed to.

    Never a body, a query or a token: the method, the path, who asked and from where.
    """
    denied = status in (401, 403)
    if not denied and request.method in ("GET", "HEAD", "OPTIONS"):
        return
    outcome = "refused" if denied else "accepted" if status < 400 else "failed"
    who = (principal.fingerprint or principal.id) if principal is not None else "nobody"
    path = one_line(request.scope["path"], 200)
    log.log(
        logging.WARNING if denied else logging.INFO,
        "api: %s: %s %s by %s from %s (%d)",
        outcome,
        request.method,
        path,
        who,
        request.client.host if request.client is not None else "unknown",
        status,
        extra={"audit": outcome, "principal": who, "method": request.method, "path": path, "status": status},
    )
