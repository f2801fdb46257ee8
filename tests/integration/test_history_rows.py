"""Rows of ``history`` that are no messages are left out, and the log says what is wrong with them."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from support.live import MODERN_FIRST, ask, client, module_fleet, write_project

from pallas.fleet.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROWS: list[tuple[Any, str]] = [
    (3, "it is not an object"),
    (None, "it is not an object"),
    ([], "it is not an object"),
    ("user: hi", "it is not an object"),
    ({}, "its role is neither user nor assistant"),
    ({"role": []}, "its role is neither user nor assistant"),
    ({"role": "system", "content": "x"}, "its role is neither user nor assistant"),
    ({"role": "user"}, "its content is not text"),
    ({"role": "user", "content": {"a": 1}}, "its content is not text"),
    ({"role": "user", "content": "x", "images": 3}, "images"),
    ({"role": "user", "content": "x", "images": [3]}, "images[0] needs data"),
    ({"role": "user", "content": "x", "images": [{"data": "%", "mime_type": "image/png"}]}, "base64"),
]
PYTHON = re.compile(r"Error\b|' object|NoneType|<class|subscriptable|not iterable|unhashable|keyword")


@module_fleet()
def fleet(folder: Path) -> Path:
    return write_project(folder, {"one": None})


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_row_that_is_left_out_is_explained_in_words(
    fleet: Fleet, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    # PR-18
    async with client(fleet, "one", era=era) as caller:
        for row, reason in ROWS:
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                rows = [row, {"role": "user", "content": "kept"}]
                assert (await ask(caller, "hello", history=rows)).endswith("hello")
            (told,) = [each.getMessage() for each in caplog.records if "left out" in each.getMessage()]
            assert "1 of 2 rows of history were left out; history[0]: " in told
            assert reason in told, told
            assert not PYTHON.search(told), told
