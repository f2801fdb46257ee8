"""Whoever lists or calls the tools of an agent waits for no library that has nothing to do with it."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

CODE = """
import asyncio
import sys

from support.guarded import guarded


async def main():
    async with guarded(None) as agent:
        for era in ("legacy", "2026-07-28"):
            async with agent.client(era) as client:
                assert (await client.list_tools()).tools
                assert (await client.list_prompts()).prompts
                result = await client.call_tool("send_message", {"message": "hello"})
                assert not result.is_error, result


asyncio.run(main())
print([name for name in ("key_value", "beartype") if name in sys.modules])
"""


@pytest.mark.slow
def test_the_store_of_sessions_that_have_nothing_to_store_is_not_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=TESTS, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr
