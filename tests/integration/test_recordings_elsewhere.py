"""A kept run goes the same in another folder, another home, another time zone: its recording has no place."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE

import pytest
import pytest_asyncio
from support import pallas_process
from support.judged import SKILL, executed, judged_project
from support.offline import offline_project
from support.replayed import FOLDER, recorded

from pallas.agent_tests.agent_test_file import find_tests
from pallas.agent_tests.kept_test import keep
from pallas.config import load_project

pytestmark = pytest.mark.slow


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return await judged_project(tmp_path_factory.mktemp("author") / "p")


@pytest.fixture
def elsewhere(made: Path, tmp_path: Path) -> Path:
    """The same project in another folder, and without the author's."""
    root = tmp_path / "another home" / "checked out"
    shutil.copytree(made, root)
    return root


async def asked(root: Path, *words: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The status of a command, and all that it printed."""
    process = await pallas_process.start_async(
        *words, "-p", str(root), stdout=PIPE, stderr=PIPE, env={**os.environ, **(env or {})}
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, (out + err).decode()


def test_a_recording_has_no_folder_of_its_author(made: Path) -> None:
    texts = {path: path.read_text() for path in (made / "tests").rglob("*.yaml")}
    assert any("<pallas:project>/skills/counting/SKILL.md" in text for text in texts.values())
    assert not [path for path, text in texts.items() if str(made) in text]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_kept_test_is_the_same_in_another_folder(elsewhere: Path) -> None:
    status, said = await asked(elsewhere, "test")
    assert (status, said.splitlines()[-1][:8]) == (0, "1 passed"), said
    status, said = await asked(elsewhere, "verdict")
    assert (status, said.splitlines()[1].split()) == (0, ["lamps", "same"]), said
    assert executed(elsewhere) == []


@pytest.mark.asyncio(loop_scope="module")
async def test_a_changed_skill_is_seen_in_another_folder(elsewhere: Path) -> None:
    skill = elsewhere / "skills" / "counting" / "SKILL.md"
    skill.write_text(skill.read_text().replace("How to count things", "How to count"))
    status, said = await asked(elsewhere, "verdict")
    assert status == 1
    assert "lamps   other words" in said, said
    assert "step 1 of clerk: another model request: messages[0].content" in said
    assert (await asked(elsewhere, "test"))[0] == 1


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_replay_is_the_same_in_another_zone_and_home(
    elsewhere: Path, tmp_path: Path, zone: str
) -> None:
    env = {"TZ": zone, "HOME": str(tmp_path / "another home"), "TMPDIR": str(tmp_path)}
    status, said = await asked(elsewhere, "replay", str(elsewhere / FOLDER), env=env)
    assert (status, "the same as the recording" in said) == (0, True), said


def test_a_test_may_expect_a_path_and_ask_for_one(elsewhere: Path) -> None:
    (elsewhere / "tests" / "agents" / "path.yaml").write_text(
        "agent: other\nask: What is in <pallas:project>/skills?\nexpect:\n"
        "  answer: {contains: [<pallas:project>/skills]}\n"
    )
    (test,) = find_tests(load_project(elsewhere), ("path",))
    assert test.turns[0].ask == f"What is in {elsewhere}/skills?"
    assert test.turns[0].expect.answer.contains == (f"{elsewhere}/skills",)


SERVER = """
import os
from stdio_server import StdioServer

server = StdioServer("docs", instructions=f"All is below {os.getcwd()}.")


@server.tool(description=f"Read a file below {os.getcwd()}.", structured_output=False)
def read(path: str) -> str:
    return f"file://{path} is empty"


server.run()
"""
SCOUT = '''
from fast_agent import FastAgent

fast = FastAgent("scout")

INSTRUCTION = """Today is {{currentDate}}. Work in {{workspaceRoot}}.
{{env}}
{{agentSkills}}
{{serverInstructions}}"""


@fast.agent(name="scout", instruction=INSTRUCTION, servers=["docs"], skills=["skills"])
async def main() -> None: ...
'''
SCRIPT = """
rules:
  - when: {last: user}
    call: [{tool: docs__read, arguments: {path: "{{ last }}"}}]
  - when: {last: tool}
    say: "So: {{ result }}"
"""


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_questions_calls_servers_and_environments_name_no_place(tmp_path: Path, isolation: str) -> None:
    root = offline_project(
        tmp_path / "author's & co",
        {"scout": SCOUT, "probe": None},
        SCRIPT,
        keys={"scout": {"isolation": isolation}},
        top={"bind": "127.0.0.1"},
        config={"mcp": {"servers": {"docs": {"command": "python", "args": ["docs.py"]}}}},
        files={"docs.py": SERVER, "skills/counting/SKILL.md": SKILL},
    )
    recording = await recorded(root, "scout", f"{root}/notes.txt")
    assert recording.first.answer == "So: file://<pallas:project>/notes.txt is empty"
    keep(recording, root, "notes")
    assert not [path for path in (root / "tests").rglob("*.yaml") if str(tmp_path) in path.read_text()]
    other = Path(shutil.copytree(root, tmp_path / "elsewhere" / "q"))
    for command in ("test", "verdict"):
        status, said = await asked(other, command)
        assert status == 0, said
    (expected,) = find_tests(load_project(other))
    assert expected.turns[0].expect.answer.contains == (f"So: file://{other}/notes.txt is empty",)
