"""What of a fleet the REST API works with. Imports neither FastAPI nor SQLAlchemy."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.types import Scope

from pallas.access.grants import Grants
from pallas.config.models import Project
from pallas.model import FleetSnapshot, Principal
from pallas.runs.kernel import Kernel
from pallas.surfaces.connection_shares import ConnectionShares

if TYPE_CHECKING:
    from pallas.catalog import Catalog
    from pallas.ledger import Ledger
    from pallas.sessions.thread_access import Threads
    from pallas.tasks import Tasks

Authenticate = Callable[[Scope], Awaitable[Principal] | Principal]
"""Who makes the request of that scope. Raises Fault (AUTH) where it is no known caller."""


@dataclass(frozen=True, slots=True)
class RestParts:
    """The fleet as the REST API sees it; everything belongs to the fleet's event loop."""

    kernel: Kernel
    threads: "Threads"
    catalog: "Catalog"
    grants: Grants
    authenticate: Authenticate
    project: Callable[[], Project]
    snapshot: Callable[[], FleetSnapshot]
    ledger: "Ledger"
    tasks: "Tasks | None" = None
    shares: ConnectionShares | None = None
    """The table of worker processes, where there are several."""
