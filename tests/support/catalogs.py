"""A catalog over a real ledger, beside a fleet that only remembers what it was told."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet

from pallas.catalog import Catalog
from pallas.catalog.secret_seal import Seal
from pallas.config import AgentConfig, Project, load_project
from pallas.ledger import Ledger, open_ledger

from .live import ECHO, write_project


class StillFleet:
    """What a catalog asks of a fleet; nothing is alive."""

    def __init__(self, files: Project) -> None:
        self.files = files
        self.updates = 0
        self.left: list[str] = []

    async def update(self) -> None:
        self.updates += 1

    async def remove(self, name: str) -> None:
        self.left.append(name)

    def removed(self, name: str) -> None:
        assert name in self.left

    def status(self, name: str) -> Mapping[str, Any]:
        return {}

    def shadow(self, name: str) -> str:
        slug = name.replace("_", "-")
        return next((str(each.where) for each in self.files.agents.values() if each.slug == slug), "")


class Stand:
    """A catalog with all that is around it."""

    def __init__(self, ledger: Ledger, fleet: StillFleet, catalog: Catalog) -> None:
        self.ledger = ledger
        self.fleet = fleet
        self.catalog = catalog

    def wanted(self, name: str) -> AgentConfig:
        """What the fleet has to make of an agent."""
        return self.catalog.desired(self.fleet.files).agents[name]


@asynccontextmanager
async def a_catalog(
    root: Path, url: str = "memory", *, keys: tuple[str, ...] = (), **files: Any
) -> AsyncIterator[Stand]:
    """A catalog for the project at ``root``, written with the agent ``helper`` where there is none."""
    if not (root / "agents.yaml").exists():
        write_project(root, {"helper": None}, config=ECHO, **files)
    ledger = await open_ledger(url)
    try:
        fleet = StillFleet(load_project(root))
        catalog = Catalog(
            ledger.resources, Seal(keys or (Fernet.generate_key().decode(),), "the test"), fleet
        )
        assert await catalog.start() == ()
        yield Stand(ledger, fleet, catalog)
        catalog.close()
    finally:
        await ledger.close()
