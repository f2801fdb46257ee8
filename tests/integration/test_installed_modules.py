"""Agents whose module is in an installed package, in the fleet's process and in one of their own."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.live import MODERN_FIRST, ask, client, running, write_project
from support.reloading import Saves
from support.waiting import until

from pallas.cli.check import check
from pallas.fleet.fleet import Fleet

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]
CODE = """
from fast_agent import FastAgent

from extpkg_of_tests.words import INSTRUCTION

fast = FastAgent("out")


@fast.agent(name="out", instruction=INSTRUCTION)
async def main() -> None: ...
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A package that this process and those below it find, outside of any project."""
    site = tmp_path_factory.mktemp("site-packages")
    package = site / "extpkg_of_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "words.py").write_text("INSTRUCTION = 'You are out.'\n")
    (package / "agent.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.setenv("PYTHONPATH", str(site))
        yield site
    for name in [each for each in sys.modules if each.startswith("extpkg_of_tests")]:
        del sys.modules[name]


def project(root: Path) -> Path:
    module = {"module": "extpkg_of_tests.agent"}
    return write_project(
        root,
        {"out": None, "far": None, "own": None},
        keys={"out": module, "far": {**module, "isolation": "process"}},
    )


@pytest.mark.slow
async def test_check_finds_it_and_says_what_is_not_there(
    tmp_path: Path, installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The first test: a fleet that reloads an agent replaces the standard output meanwhile.
    root = project(tmp_path)
    assert await asyncio.to_thread(check, root, do_import=True) == 0
    assert "ok: 3 agents" in capsys.readouterr().out
    entries = (root / "agents.yaml").read_text()
    (root / "agents.yaml").write_text(entries.replace("extpkg_of_tests.agent", "extpkg_of_nobody.agent"))
    assert await asyncio.to_thread(check, root) == 2
    told = capsys.readouterr().err
    assert "agents.out.module: there is no file for extpkg_of_nobody.agent" in told
    assert "in the project, and for an installed package" in told
    (root / "agents.yaml").write_text(entries.replace("extpkg_of_tests.agent", "extpkg_of_tests.nothing"))
    assert await asyncio.to_thread(check, root, do_import=True) == 2
    assert "extpkg_of_tests.nothing" in capsys.readouterr().err


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> AsyncIterator[Fleet]:
    root = project(tmp_path_factory.mktemp("installed"))
    (root / "agents" / "out.py").unlink()
    async with running(root, watch=True) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_an_agent_of_an_installed_package_answers(fleet: Fleet, era: str) -> None:
    for agent in ("out", "far", "own"):
        async with client(fleet, agent, era=era) as caller:
            assert await ask(caller, "hello") == "hello"


async def test_it_starts_again_beside_its_old_version(fleet: Fleet, installed: Path) -> None:
    saves = Saves(fleet, fleet.project.root)
    before = saves.versions()["out"]
    async with client(fleet, "out") as caller:
        assert await ask(caller, "one", conversation_id="c") == "one"
        module = installed / "extpkg_of_tests" / "agent.py"
        module.write_text(CODE.replace("instruction=INSTRUCTION", "instruction='You are new.'"))
        saves.edit("fastagent.config.yaml", lambda settings: settings.update(llm_retries=1))
        await until(lambda: saves.versions()["out"] > before)
        assert saves.instruction("out") == "You are new."
        assert await ask(caller, "two", conversation_id="c") == "two"
