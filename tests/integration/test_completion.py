"""Completion of prompt arguments: answered, and telling nobody the handle of a conversation."""

from pathlib import Path

import pytest
from mcp_types import PromptReference
from support.live import ERAS, ask, client, running, write_project


@pytest.mark.parametrize("era", ERAS)
async def test_completion_answers_and_suggests_no_handle(tmp_path: Path, era: str) -> None:
    async with (
        running(write_project(tmp_path, {"one": None})) as fleet,
        client(fleet, "one", era=era) as caller,
    ):
        await ask(caller, "hello", conversation_id="canary-handle")
        for prompt in ("one_history", "not_there"):
            found = await caller.complete(
                PromptReference(name=prompt), {"name": "conversation_id", "value": "canary"}
            )
            assert found.completion.values == []
