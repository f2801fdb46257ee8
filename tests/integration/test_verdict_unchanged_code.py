"""Saves that change no code: runs of agents with the syntax trees and settings of then are not replayed."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.gated import GatedSaves, gated
from support.offline import offline_project
from support.replayed import FOLDER, recorded

from pallas.agent_tests.kept_test import keep
from pallas.model import RunVerdict

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]

DESK = '''
"""An agent."""

import os

from agents.words import INSTRUCTION
from fast_agent import FastAgent

fast = FastAgent("desk")
file = os.open("imported", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
os.write(file, b"desk ")
os.close(file)


@fast.agent(name="desk", instruction=INSTRUCTION)
async def main() -> None: ...
'''
WORDS = 'INSTRUCTION = "You are desk."\n'
ASKER = """
from dataclasses import dataclass

from pallas.contract import HandlerResponse, Text


@dataclass
class Ask:
    text: str


async def asker(payload, metadata):
    return HandlerResponse.respond(Text(f"so: {payload.text}"))
"""
SCRIPT = """
rules:
  - say: "hello"
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent ``desk`` with the test ``hello``, and the handler ``asker`` with the test ``asked``."""
    handler = {"kind": "handler", "handler": "asker:asker", "payload": "asker:Ask", "agent": True}
    root = offline_project(
        tmp_path_factory.mktemp("unchanged") / "p",
        {"desk": DESK, "asker": None, "probe": None},
        SCRIPT,
        keys={"asker": {"module": None, **handler}},
        top={"bind": "127.0.0.1", "verdict": {"gate": "warn"}},
        files={"agents/words.py": WORDS, "asker.py": ASKER},
    )
    for agent, name in (("desk", "hello"), ("asker", "asked")):
        recording = await recorded(root, agent, "hello")
        await asyncio.to_thread(keep, recording, root, name)
        shutil.rmtree(root / FOLDER)
    return root


@pytest_asyncio.fixture(loop_scope="module")
async def saves(made: Path, tmp_path: Path) -> AsyncIterator[GatedSaves]:
    async with gated(Path(shutil.copytree(made, tmp_path / "p"))) as saves:
        yield saves


async def verdict_on(saves: GatedSaves, path: str, old: str, new: str) -> RunVerdict:
    """What is said of the only run that a save leads to."""
    known, text = len(saves.verdicts()), (saves.root / path).read_text()
    assert old in text
    saves.write(path, text.replace(old, new))
    verdict = await saves.verdict(known)
    assert not verdict.problem, verdict.problem
    await saves.settled()
    (run,) = verdict.runs
    return run


def imports(saves: GatedSaves) -> int:
    """How often the module of desk was imported, by whomever."""
    return len((saves.root / "imported").read_text().split())


async def unplayed(saves: GatedSaves, path: str, old: str, new: str) -> RunVerdict:
    """As ``verdict_on``; only the live fleet imports what was saved."""
    before = imports(saves)
    run = await verdict_on(saves, path, old, new)
    assert imports(saves) <= before + 1, run.line
    assert run.seconds == 0.0, run.line
    return run


async def test_comments_and_layout_are_the_same_at_once_without_a_replay(saves: GatedSaves) -> None:
    for path, old, new in (
        ("agents/desk.py", "async def main", "# a comment\nasync def main"),
        ("agents/desk.py", '"desk", instruction', "'desk',\n    instruction"),
        ("agents/words.py", "INSTRUCTION = ", "INSTRUCTION = (  # what it is told\n    "),
        ("asker.py", "return Handler", "# how it answers\n    return Handler"),
    ):
        closing = ")\n" if "(" in new and path == "agents/words.py" else ""
        if closing:
            old, new = WORDS, WORDS.replace(old, new).rstrip() + closing
        assert (await unplayed(saves, path, old, new)).word == "same", path


async def test_what_is_code_is_replayed_and_compared_with_the_recording(saves: GatedSaves) -> None:
    before = imports(saves)
    run = await verdict_on(saves, "agents/desk.py", "An agent.", "An agent of the desk.")
    assert (run.word, imports(saves)) == ("same", before + 2)  # a docstring: live, and in the judge
    run = await verdict_on(saves, "agents/words.py", "You are desk.", "You are a desk.")
    assert run.word == "other words"
    run = await verdict_on(saves, "agents/words.py", "INSTRUCTION", "# a comment\nINSTRUCTION")
    assert run.word == "other words"  # still, though this save changed a comment only
    run = await verdict_on(saves, "agents/words.py", "You are a desk.", "You are desk.")
    assert run.word == "same"
    run = await verdict_on(saves, "asker.py", "so: ", "thus: ")
    assert (run.word, run.what) == (
        "not decided",
        "what the handler asker does now is not known: it is not run",
    )


async def test_other_settings_are_replayed_though_only_a_comment_is_saved(saves: GatedSaves) -> None:
    known = len(saves.verdicts())
    saves.edit("agents.yaml", lambda content: content["agents"]["desk"].update(params={"temperature": 0.5}))
    assert (await saves.verdict(known)).counts == {"other words": 1}
    await saves.settled()
    run = await verdict_on(saves, "agents/desk.py", "async def main", "# a comment\nasync def main")
    assert (run.word, "temperature" in run.what) == ("other words", True), run.line


async def test_after_another_environment_every_save_is_replayed(saves: GatedSaves) -> None:
    known = len(saves.verdicts())
    saves.write(".env", "DRAWER=7\n")
    assert (await saves.verdict(known)).agents == ("asker", "desk", "probe")
    await saves.settled()
    before = imports(saves)
    run = await verdict_on(saves, "agents/desk.py", "async def main", "# a comment\nasync def main")
    assert (run.word, imports(saves)) == ("same", before + 2)


async def test_a_recording_without_digests_of_code_is_replayed_and_says_so(saves: GatedSaves) -> None:
    for path in (saves.root / "tests").rglob("run.yaml"):
        text = path.read_text()
        assert "\n  code: " in text
        path.write_text(re.sub(r"\n  (code|settings): .*", "", text))
    before = imports(saves)
    run = await verdict_on(saves, "agents/desk.py", "async def main", "# a comment\nasync def main")
    assert (run.word, imports(saves)) == ("same", before + 2)
    run = await verdict_on(saves, "asker.py", "return Handler", "# how it answers\n    return Handler")
    assert (run.word, run.what) == (
        "not decided",
        "what the handler asker does now is not known: it is not run; its recording does not say what the "
        "code of asker was: record it again",
    )
