"""The endpoint of limits: what callers, agents and runs have used of them."""

from typing import Any

from starlette.requests import Request

from pallas.model import Principal
from pallas.model.spend_limits import AccountStatus, plain_amount
from pallas.model.time_text import iso

from .response_models import PageOf
from .rest_parts import RestParts
from .route_table import Routes, principal_of
from .run_models import AccountModel


def account_out(status: AccountStatus) -> AccountModel:
    """Return a limit of an account as it is sent."""
    allowed, used, held, left = (
        plain_amount(status.dimension, number)
        for number in (status.allowed, status.used, status.held, status.left)
    )
    return AccountModel(
        scope=status.scope,
        limit=status.key,
        allowed=allowed,
        used=used,
        held=held,
        left=left,
        resetsAt=iso(status.resets_at) if status.resets_at is not None else None,
        where=status.where or None,
    )


def _may_see(parts: RestParts, principal: Principal, scope: str) -> bool:
    """Whether a caller may see an account: its own, of its own runs, and of agents that it may view."""
    if parts.threads.owner_seen(principal) is None:
        return True
    kind, _, name = scope.partition(":")
    if kind == "agent":
        return parts.grants.allows(principal, "view", "agents", name)
    if kind == "run":
        run = parts.kernel.in_flight.get(name)
        return run is not None and run.owner == principal.id
    return name == principal.id


def add_limits(routes: Routes) -> None:
    """Add the endpoint of limits."""
    parts = routes.parts

    @routes.add("GET", "/limits", "The use of limits", response=PageOf[AccountModel])
    async def list_limits(request: Request) -> dict[str, Any]:
        """The accounts of callers and agents of today that have limits and were used, and of your runs in
        flight; with `view:agents` and `admin:threads`, of all."""
        principal, spending = principal_of(request), parts.kernel.spending
        found = await spending.list() if spending is not None else ()
        seen = [account_out(each) for each in found if _may_see(parts, principal, each.scope)]
        return {"items": seen, "next": None}
