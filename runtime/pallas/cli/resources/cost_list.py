"""`pallas get costs`: what runs cost, summed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, get_args

from pallas.model import CostsBy
from pallas.model.money import cost_in
from pallas.safe_text import one_line

from .fleet_requests import OK, USAGE, FleetLocation, complain, run_with_fleet
from .text_output import FORMATS, as_json, as_yaml
from .text_tables import table, width_of

if TYPE_CHECKING:
    from pallas.client import RestClient

BY: Final[tuple[str, ...]] = get_args(CostsBy.__value__)
_NONE: Final = "-"


def cost_text(body: Mapping[str, Any], *, tree: bool = False) -> str:
    """The cost in a document of the REST API, as it is shown."""
    return cost_in(body, tree=tree).text


def with_costs(body: dict[str, Any]) -> dict[str, Any]:
    """A document with its costs as they are shown, in place of their numbers."""
    shown = {"cost": cost_text(body), "treeCost": cost_text(body, tree=True)}
    numbers = ("unpriced", "treeUnpriced")
    return {name: shown.get(name, value) for name, value in body.items() if name not in numbers}


def get_costs(by: str, since: str, output: str, reach: FleetLocation) -> int:
    """Print the sums, the dearest first, and their total; returns the exit status."""
    if by not in BY:
        complain(f"pallas get costs: --by {one_line(by, 40)}: allowed: {', '.join(BY)}")
        return USAGE
    if output not in FORMATS:
        complain(f"pallas get costs: --output {one_line(output, 40)}: allowed: {', '.join(FORMATS)}")
        return USAGE

    async def work(api: "RestClient") -> int:
        body = await api.get("/costs", visible=output == "table", by=by, since=since)
        if output != "table":
            print(as_json(body) if output == "json" else as_yaml([body]))
            return OK
        rows = [[str(each.get("key") or _NONE), *_numbers(each)] for each in body.get("items") or ()]
        rows.append(["TOTAL", *_numbers(body.get("total") or {})])
        print(table([by.upper(), "COST", "RUNS", "TOKENS IN", "TOKENS OUT"], rows, width_of()))
        return OK

    return run_with_fleet(reach, work)


def _numbers(body: Mapping[str, Any]) -> list[str]:
    usage = body.get("usage") or {}
    tokens = [usage.get(name) for name in ("inputTokens", "outputTokens")]
    shown = ["" if each is None else f"{each:,}" for each in tokens]
    return [cost_text(body) or _NONE, f"{body.get('runs') or 0:,}", *shown]
