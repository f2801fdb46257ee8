"""Two fleets of one project that share a PostgreSQL database."""

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from sqlalchemy import func, select

from pallas.ledger import open_ledger, tables

from .databases import Server, fresh_database
from .served import Served, served
from .survivors import effects, project
from .waiting import poll, until


@dataclass
class Replicas:
    """Two fleets, their database, and the folder of their tools' effects and door."""

    one: Served
    two: Served
    url: str
    here: Path


@dataclass(frozen=True)
class Setup:
    """What of two fleets is not as usual: rules for calls whose answer was lost, and constants of modules."""

    rules: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)


@pytest_asyncio.fixture
async def replicas(
    request: pytest.FixtureRequest, postgres: Server, tmp_path: Path
) -> AsyncIterator[Replicas]:
    """``indirect`` parameters are the rules for calls whose answer was lost, or a ``Setup``."""
    here = tmp_path / "here"
    here.mkdir()
    given = getattr(request, "param", None) or Setup()
    setup = given if isinstance(given, Setup) else Setup(given)
    keys = {"unfinished_calls": setup.rules} if setup.rules else {}
    async with fresh_database(postgres) as url:
        with ExitStack() as stack:
            fleets = []
            for name in ("one", "two"):
                top = {"drain": "hand_over", "drain_timeout": 1}
                root = project(tmp_path / name, url, here=here, top=top, **keys)
                fleets.append(stack.enter_context(served(root, constants=setup.constants)))
            for fleet in fleets:
                await fleet.says("] running")
            yield Replicas(*fleets, url, here)


async def in_its_call(here: Path, times: int = 1) -> None:
    """Wait until the tool that waits for the door was called so often."""
    await until(lambda: effects(here).count("wait b") == times, timeout=60)


async def waiting(url: str, number: int) -> None:
    """Wait until so many runs wait for a thread."""
    ledger = await open_ledger(url)
    try:
        count = select(func.count()).select_from(tables.waiting)
        await poll(
            lambda: ledger.database.read(lambda it: it.execute(count).scalar_one()),
            lambda found: found == number,
        )
    finally:
        await ledger.close()


@asynccontextmanager
async def bridge(fleet: Served, era: str, bearer: str = "") -> AsyncIterator[Client]:
    """A real client of a fleet's bridge."""
    headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(f"{fleet.registry}/mcp", http_client=http), mode=era) as connected,
    ):
        yield connected
