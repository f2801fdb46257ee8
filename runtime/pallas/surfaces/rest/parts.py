"""What of a fleet the REST API works with."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.types import Scope

from pallas.config.models import Project
from pallas.grants import Grants
from pallas.kernel import Kernel
from pallas.model import FleetSnapshot, Principal

if TYPE_CHECKING:
    from pallas.catalog import Catalog
    from pallas.ledger import Ledger
    from pallas.tasks import Tasks
    from pallas.threads import Threads

Authenticate = Callable[[Scope], Awaitable[Principal] | Principal]
"""Who makes the request of that scope. Raises Fault (AUTH) for whom nobody knows."""


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
