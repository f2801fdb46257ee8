"""The REST API of a fleet that has a ledger, from its start to its end."""

import asyncio
import importlib
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

if TYPE_CHECKING:
    from .fleet import Fleet


class Api:
    """What is mounted at ``/api/v1``; ``close`` ends it with the fleet, before the ledger is closed."""

    def __init__(self, rest: Any) -> None:
        self._rest = rest

    @property
    def app(self) -> ASGIApp:
        """The application itself."""
        app: ASGIApp = self._rest
        return app

    async def close(self) -> None:
        """End the runs that came in here."""
        await self._rest.close()


async def make_api(fleet: "Fleet") -> Api | None:
    """The REST API of a fleet that starts; None without a ledger. It is imported in a thread meanwhile."""
    if fleet.ledger is None or fleet.threads is None or fleet.catalog is None:
        return None
    rest, principal = await asyncio.to_thread(_imported)

    def tokens() -> Any:
        return fleet.control_api.tokens if fleet.control_api is not None else None

    parts = rest.RestParts(
        kernel=fleet.kernel,
        threads=fleet.threads,
        catalog=fleet.catalog,
        grants=fleet.grants,
        authenticate=principal.Authenticator(fleet.inbound, tokens),
        project=lambda: fleet.project,
        snapshot=fleet.snapshot,
        ledger=fleet.ledger,
        tasks=fleet.lasting.tasks,
    )
    return Api(rest.rest_app(parts))


def _imported() -> tuple[Any, Any]:
    return (
        importlib.import_module("pallas.surfaces.rest.rest_app"),
        importlib.import_module("pallas.surfaces.rest.rest_principal"),
    )
