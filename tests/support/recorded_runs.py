"""Runs of a fleet that are to be recorded."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from .live import ERAS
from .recorded import recorded_project
from .served import Served, served
from .surfaces import rest
from .waiting import until


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A fleet of ``recorded_project``."""
    root = recorded_project(tmp_path_factory.mktemp("recorded") / "p")
    with served(root) as found:
        await found.says("] running")
        yield found


async def asked(fleet: Served, text: str, agent: str = "lead", era: str = ERAS[0], **more: Any) -> str:
    """The id of a run that was asked this, whose steps are stored."""
    async with fleet.client(agent, era) as client:
        result = await client.call_tool("send_message", {"message": text, **more})
        assert not result.is_error, result
        run = str((result.meta or {})["local.pallas/runId"])

    async def is_over() -> bool:
        async with rest(fleet) as http:
            return bool((await http.get(f"/runs/{run}")).json().get("status") == "ok")

    await until(is_over)
    return run
