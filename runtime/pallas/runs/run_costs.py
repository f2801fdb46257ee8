"""What runs cost with the runs below them: from the ledger, and from memory what it does not have yet."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pallas.model import NO_COST, Cost, CostsBy, CostSum, RunRecord
from pallas.runs.kernel import Kernel

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger


class RunCost(NamedTuple):
    """What a run cost so far."""

    own: Cost = NO_COST
    tree: Cost = NO_COST  # with the runs below it


class RunCosts:
    """The costs of one ledger's runs. Raises Fault (TRANSPORT, TIMEOUT) if the ledger fails."""

    def __init__(self, kernel: Kernel, ledger: "Ledger") -> None:
        self._kernel = kernel
        self._ledger = ledger

    async def of(self, records: Sequence[RunRecord]) -> Mapping[str, RunCost]:
        """What each of these runs cost, by its id."""
        stored = await self._ledger.costs.below([each.id for each in records])
        fresh = self._fresh()
        found = {}
        for record in records:
            below = {**stored.get(record.id, {}), **_fresh_below(record.id, stored.get(record.id, {}), fresh)}
            own = Cost.of(fresh.get(record.id, record))
            found[record.id] = RunCost(own, Cost.sum((own, *below.values())))
        return found

    async def of_threads(self, threads: Sequence[str]) -> Mapping[str, Cost]:
        """What the runs of each of these threads cost that are over, with those below them."""
        found = await self._ledger.costs.of_threads(threads)
        return {each: found.get(each, NO_COST) for each in threads}

    async def sums(self, by: CostsBy, since: float, owner: str | None) -> Sequence[CostSum]:
        """Sums over the runs that are over; as ``CostStore.sums``."""
        if self._kernel.recorder is not None:
            await self._kernel.recorder.settle()
        return await self._ledger.costs.sums(by, since=since, owner=owner)

    def _fresh(self) -> Mapping[str, RunRecord]:
        """The runs that the ledger does not have as they are."""
        records = (*self._kernel.unwritten(), *(run.record for run in self._kernel.in_flight))
        return {each.id: each for each in records}


def _fresh_below(root: str, stored: Mapping[str, Cost], fresh: Mapping[str, RunRecord]) -> Mapping[str, Cost]:
    """The runs below ``root`` that are known better from memory."""
    above: set[str] = {root, *stored}
    found: dict[str, Cost] = {}
    while True:
        new = {
            run_id: Cost.of(record)
            for run_id, record in fresh.items()
            if run_id not in found and (run_id in stored or record.caused_by in above)
        }
        if not new:
            return found
        found |= new
        above |= new.keys()
