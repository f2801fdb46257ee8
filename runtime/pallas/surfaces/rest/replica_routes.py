"""The endpoints of the ledger: the fleets that use it, and what it holds."""

from typing import Any

from starlette.requests import Request

from pallas.model import ReplicaRecord, StoragePart
from pallas.model.time_text import iso

from .request_body import Cursor, Id, Limit, page_of, plain
from .response_models import PageOf, ReplicaModel, StorageModel
from .route_table import Routes


def replica_out(record: ReplicaRecord) -> ReplicaModel:
    """Return a replica as it is sent."""
    return ReplicaModel(
        id=record.id,
        host=record.host,
        pid=record.pid,
        release=record.release,
        state=record.state,
        startedAt=iso(record.started_at),
        lastBeatSeconds=round(record.beat_age, 1) if record.beat_age is not None else None,
        runs=record.runs,
        continued=record.continued,
        takenOver=record.taken_over,
        isHere=record.is_here,
    )


def add_replicas(routes: Routes) -> None:
    """Add the endpoints of replicas."""
    parts = routes.parts

    @routes.add("GET", "/replicas", "Replicas, the oldest first", response=PageOf[ReplicaModel])
    async def list_replicas(request: Request, limit: Limit = 50, cursor: Cursor = "") -> dict[str, Any]:
        """The fleets that use the same ledger, and dead ones whose runs nobody has taken over yet."""
        plain(cursor)
        return page_of(await parts.ledger.replicas.list(limit=limit, cursor=cursor), replica_out)

    @routes.add("GET", "/replicas/{id}", "A replica", response=ReplicaModel)
    async def get_replica(request: Request, id: Id) -> ReplicaModel:  # noqa: A002 - the word of the path
        """One of them."""
        plain(id)
        return replica_out(await parts.ledger.replicas.get(id))


def storage_out(part: StoragePart) -> StorageModel:
    """Return what the ledger holds of one kind as it is sent."""
    return StorageModel(
        what=part.what, count=part.count, characters=part.size, storedBytes=part.stored, limitBytes=part.limit
    )


def add_storage(routes: Routes) -> None:
    """Add the endpoint of storage."""
    parts = routes.parts

    @routes.add("GET", "/storage", "What the ledger holds", response=PageOf[StorageModel])
    async def list_storage(request: Request) -> dict[str, Any]:
        """Its size, and what takes it: steps, parts of requests, long texts with their limit, and what the
        steps of a turn added, as the mean of the last 100."""
        found = await parts.ledger.storage.parts()
        return {"items": [storage_out(each) for each in found], "next": None}
