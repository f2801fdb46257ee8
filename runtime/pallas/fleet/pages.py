"""What a fleet as a whole serves: the registry with all that stands beside it, or the pages of one agent."""

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from pallas.config import Project
from pallas.health.preflight import ProviderReport
from pallas.model import FleetSnapshot
from pallas.surfaces.metrics import Metrics
from pallas.surfaces.published import base_url
from pallas.surfaces.registry import registry_app
from pallas.surfaces.status import Page, status_pages


class Pages:
    """The pages of one fleet. With ``alone`` it is one agent's, and nobody is told of others."""

    def __init__(
        self,
        project: Callable[[], Project],
        snapshot: Callable[[], FleetSnapshot],
        providers: Callable[[], Sequence[ProviderReport]],
        *,
        alone: bool,
    ) -> None:
        self._project = project
        self._snapshot = snapshot
        self._providers = providers
        self._alone = alone
        self.metrics = Metrics(snapshot, self._instance)

    def _instance(self) -> str:
        """``host:port`` under which others know the registry; empty without one."""
        return "" if self._alone else urlsplit(base_url(self._project())).netloc

    def of_agents(self) -> Mapping[str, Page]:
        """What is served on the agent's own port, by path."""
        return self._status() if self._alone else {}

    def app(self, control: ASGIApp | None, rest: ASGIApp | None = None) -> ASGIApp:
        """What is served on the fleet's port; ``control`` and ``rest`` are its APIs, if there are any."""
        if self._alone:
            return Starlette(routes=[Route(path, page) for path, page in self._status().items()])
        return registry_app(
            self._project,
            self._snapshot,
            metrics=self.metrics,
            providers=self._providers,
            control=control,
            rest=rest,
        )

    def _status(self) -> Mapping[str, Page]:
        return status_pages(self._snapshot, metrics=self.metrics, providers=self._providers)
