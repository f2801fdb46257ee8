"""Long texts of a run are recorded as a whole, stored once, and deleted with the last run that had them."""

import json
import re
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from time import time
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import Connection, func, select
from support.live import agent_module
from support.offline import offline_project
from support.recorded_runs import asked
from support.served import Served, served
from support.surfaces import rest, typed

from pallas.ledger import open_ledger
from pallas.ledger.blob_store import TEXT, forget_unused
from pallas.ledger.tables import blobs, texts
from pallas.model import Recording
from pallas.recordings.recording_folder import read

pytestmark = pytest.mark.slow
WORDS = ["lamp", "Glühbirne", "shelf", "\\", '"quoted"', "line\n", "\U0001f4a1", "count", "nine", "{", "]"]


def long_text(seed: int, length: int) -> str:
    """A text of so many characters, about."""
    random, pieces, left = Random(seed), list[str](), length
    while left > 0:
        pieces.append(f"{random.choice(WORDS)}{random.randrange(10**6)}")
        left -= len(pieces[-1]) + 1
    return " ".join(pieces)


INSTRUCTION = "You are scout. " + long_text(1, 200_000)
RESULT = long_text(2, 1_000_000)
MESSAGE = long_text(3, 100_000)
SERVER = """
from pathlib import Path

from stdio_server import StdioServer

server = StdioServer("docs")


@server.tool(structured_output=False)
def fetch(path: str) -> str:
    return Path(__file__).with_name("result.txt").read_text("utf-8")


server.run()
"""
SCRIPT = """
rules:
  - when: {last: user}
    call: [{tool: docs__fetch, arguments: {path: "all"}}]
  - when: {last: tool}
    say: "read, turn {{ turns }}"
"""


def whole_project(root: Path, **top: Any) -> Path:
    module = agent_module("scout", ("docs",)).replace('"You are scout."', repr(INSTRUCTION))
    docs = {"command": "python", "args": ["docs.py"]}
    return offline_project(
        root,
        {"scout": module},
        SCRIPT,
        top={"bind": "127.0.0.1", **top},
        config={"mcp": {"servers": {"docs": docs}}},
        files={"docs.py": SERVER, "result.txt": RESULT},
    )


@pytest_asyncio.fixture
async def fleet(tmp_path: Path, database_url: str) -> AsyncIterator[Served]:
    with served(whole_project(tmp_path / "p", database_url=database_url)) as found:
        await found.says("] running")
        yield found


def strings(value: Any) -> Iterator[str]:
    """All strings in a document."""
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(each)


def counted(connection: Connection) -> tuple[int, int]:
    """How many long texts are stored, and how many are known."""
    of_texts = select(func.count()).select_from(blobs).where(blobs.c.scope == TEXT)
    known = select(func.count()).select_from(texts)
    return connection.execute(of_texts).scalar_one(), connection.execute(known).scalar_one()


def texts_of(recording: Recording) -> set[str]:
    (run,) = recording.runs
    documents = [json.loads(text) for each in run.steps for text in (each.request, each.response) if text]
    return {run.question, *strings(documents)}


def assert_whole(found: Iterable[str]) -> None:
    """Each long text is in one of these: fast-agent may add to instructions."""
    found = list(found)
    for name, text in {"instruction": INSTRUCTION, "result": RESULT, "message": MESSAGE}.items():
        assert any(text in each for each in found), name


async def assert_storage(fleet: Served) -> None:
    """What `pallas get storage` and REST say of the ledger with two turns."""
    found = {each["what"]: each for each in await documents(fleet)}
    assert found["database"]["storedBytes"] > 100_000
    assert [found[name]["count"] for name in ("threads", "runs", "steps", "long texts")] == [2, 2, 6, 3]
    whole = found["long texts"]
    assert 1_300_000 < whole["characters"] < 1_400_000
    assert whole["characters"] > whole["storedBytes"] > 100_000
    assert whole["limitBytes"] == 2 * 2**30
    assert found["growth of a turn"]["storedBytes"] > whole["storedBytes"] / 3
    table = await typed("get", "storage", "-p", str(fleet.root))
    assert re.search(r"^long texts +3 +1,3\d\d,\d\d\d +\d+\.\d KiB +2\.0 GiB$", table, re.MULTILINE), table


async def documents(fleet: Served) -> list[dict[str, Any]]:
    async with rest(fleet) as http:
        sent: list[dict[str, Any]] = (await http.get("/storage")).json()["items"]
    shown = json.loads(await typed("get", "storage", "-o", "json", "-p", str(fleet.root)))
    assert [each["what"] for each in shown["items"]] == [each["what"] for each in sent]
    return sent


async def test_each_text_is_whole_in_the_recording_and_goes_with_the_last_run(
    fleet: Served, database_url: str, tmp_path: Path
) -> None:
    runs = [await asked(fleet, MESSAGE, "scout", conversation_id=name) for name in ("one", "two")]
    place = tmp_path / "recording"
    told = await typed("record", runs[0], "-o", str(place), "-p", str(fleet.root))
    assert "not recorded" not in told
    recording = read(place)
    assert recording.missing == ()
    assert_whole(texts_of(recording))
    assert "characters, SHA-256" not in "".join(path.read_text() for path in place.rglob("*.yaml"))

    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(fleet.root, elsewhere)
    told = await typed("replay", str(place), "-p", str(elsewhere))
    assert "the same as the recording" in told

    ledger = await open_ledger(database_url)
    try:
        assert await ledger.database.read(counted) == (3, 3)
        details = [await ledger.steps.get(runs[1], number) for number in (2, 3)]
        assert [each and each.lacks for each in details] == [(), ()]
        bodies = [body for each in details if each is not None for body in (each.request, each.response)]
        assert_whole(strings([json.loads(body) for body in bodies]))
        await assert_storage(fleet)
        later = partial(forget_unused, now=time() + 3 * 3600)
        for run, left in ((runs[0], 3), (runs[1], 0)):
            async with rest(fleet) as http:
                thread = (await http.get(f"/runs/{run}")).json()["threadId"]
                assert (await http.delete(f"/threads/{thread}")).status_code in (200, 204)
            await ledger.database.write(later)
            assert await ledger.database.read(counted) == (left, left)
    finally:
        await ledger.close()


async def test_texts_for_which_there_is_no_room_are_named_where_the_run_is_shown(tmp_path: Path) -> None:
    root = whole_project(tmp_path / "p", database_url=f"sqlite:///{tmp_path}/full.sqlite3", step_texts_mib=0)
    with served(root) as fleet:
        await fleet.says("] running")
        run = await asked(fleet, MESSAGE, "scout", conversation_id="one")
        await typed("record", run, "-o", str(tmp_path / "whole"), "-p", str(root))  # once it is stored
    assert read(tmp_path / "whole").missing == ()  # the fleet still had them
    why = "texts of steps take 0 MiB, the most they may (step_texts_mib in agents.yaml)"
    told = await typed("describe", "run", run, "-p", str(root))
    assert f"  lacks: a text of {len(MESSAGE)} characters: {why}" in told
    document = json.loads(await typed("describe", "run", run, "-o", "json", "-p", str(root)))
    assert any(line.endswith(why) for line in document["recordedSteps"][0]["lacks"])
    table = await typed("get", "storage", "-p", str(root))
    assert re.search(r"^long texts left out +3$", table, re.MULTILINE), table
    with served(root) as fleet:
        await fleet.says("] running")
        await typed("record", run, "-o", str(tmp_path / "cut"), "-p", str(root))
    missing = read(tmp_path / "cut").missing
    assert [line for line in missing if f"step 2: a text of {len(RESULT)} characters: {why}" in line]
