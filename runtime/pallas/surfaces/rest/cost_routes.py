"""The endpoint of costs."""

from time import time
from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request

from pallas.model import Cost, CostsBy, CostSum, Fault, FaultType
from pallas.model.money import cost_fields
from pallas.model.time_text import since_of
from pallas.runs.run_costs import RunCosts

from .request_body import plain
from .route_table import Routes, principal_of
from .run_models import CostsModel, CostSumModel, TokensModel

Since = Annotated[
    str,
    Query(
        max_length=40, description="`24h`, `7d`, or a date or time in ISO 8601; empty for all.", examples=[""]
    ),
]


def sum_out(item: CostSum) -> CostSumModel:
    """Return a sum as it is sent."""
    counted = item.tokens_in is not None or item.tokens_out is not None
    usage = TokensModel(inputTokens=item.tokens_in, outputTokens=item.tokens_out) if counted else None
    return CostSumModel(key=item.key, runs=item.runs, usage=usage, **cost_fields(item))


def add_costs(routes: Routes) -> None:
    """Add the endpoint of costs."""
    parts = routes.parts
    run_costs = RunCosts(parts.kernel, parts.ledger)

    @routes.add("GET", "/costs", "What runs cost", response=CostsModel)
    async def list_costs(request: Request, by: CostsBy = "agent", since: Since = "") -> CostsModel:
        """Sums over your own runs that are over; with `view:agents` and `admin:threads`, over all of them."""
        plain(since)
        begin = since_of(since, time())
        if begin is None:
            raise Fault(
                FaultType.PROTOCOL,
                "since: allowed: 24h, 7d, or a date or time such as 2026-03-12T15:42:00Z",
                data={"key": "since"},
            )
        items = await run_costs.sums(by, begin, parts.threads.owner_seen(principal_of(request)))
        return CostsModel(items=[sum_out(item) for item in items], total=sum_out(_total(items)))


def _total(items: Any) -> CostSum:
    cost = Cost.sum(items)
    return CostSum("", cost.cost, cost.unpriced, sum(each.runs for each in items))
