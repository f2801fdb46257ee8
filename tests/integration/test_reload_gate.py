"""While a fleet watches its files, a version that recorded tests do not pass with is held back."""

import asyncio
import logging
import shutil
import signal
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from support.gated import CountedTests, GatedSaves, gated, gated_project, replace_test
from support.live import ERAS, ask
from support.reloading import module
from support.served import Served, served
from support.waiting import until

from pallas.config import Project
from pallas.config.ports import free_port
from pallas.fleet.reload.reload_report import report_line
from pallas.model import HoldingTest

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return await gated_project(tmp_path_factory.mktemp("gated") / "p")


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy of the project, for one test."""
    return Path(shutil.copytree(made, tmp_path / "p"))


@pytest_asyncio.fixture(loop_scope="module")
async def saves(root: Path) -> AsyncIterator[GatedSaves]:
    async with gated(root) as saves:
        yield saves


@pytest.mark.slow
async def test_what_breaks_a_test_is_held_back_until_a_save_repairs_it(
    saves: GatedSaves, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pallas.fleet.reload")
    saves.desk("Birch.")
    saves.write("agents/other.py", module("other", "Birch."))
    await saves.is_held("desk")
    assert saves.tests.names == {"hello", "through"}
    for era in ERAS:
        assert await saves.says("desk", era) == "Apple. 1"
        assert await saves.says("front", era) == "desk says Apple. 1"
        assert await saves.says("other", era) == "Birch. 1"
    event = await saves.outcome("desk")
    assert (event.outcome, event.version, event.files) == ("held", 1, ("agents/desk.py",))
    assert [each.name for each in event.tests] == ["hello", "through"]
    assert all('messages[0].content is "Birch."' in each.why for each in event.tests)
    assert event.error.startswith("2 of 2 tests fail: hello (recording: ")
    assert event.error.endswith("), through")
    assert [line.partition(": ")[0] for line in event.story.splitlines()] == ["hello", "through"]
    assert [change.name for change in event.changes] == ["agents/desk.py"]
    assert "+" in event.changes[0].diff
    line = report_line(event)
    assert line.startswith("desk: version held back (agents/desk.py): 2 of 2 tests fail: hello (")
    assert line.endswith("; reload lets it through")
    assert line in caplog.messages
    desk = next(each for each in saves.fleet.snapshot().agents if each.name == "desk")
    assert (desk.state.value, desk.health.status.value) == ("ready", "ok")
    saves.desk("Apple.", "\n# the same for its callers\n")
    await saves.is_live("desk", 1)
    assert saves.held() == ()
    assert await saves.says("desk", ERAS[0]) == "Apple. 1"


@pytest.mark.slow
async def test_a_requested_reload_lets_it_through_and_the_next_save_is_tested_again(
    saves: GatedSaves,
) -> None:
    saves.desk("Birch.")
    await saves.is_held("desk")
    ran = saves.tests.runs
    saves.fleet.control_fleet("reload")
    await saves.is_live("desk", 1)
    assert (saves.held(), saves.tests.runs) == ((), ran)
    for era in ERAS:
        assert await saves.says("desk", era) == "Birch. 1"
    saves.desk("Birch.", "\n# again\n")
    await saves.is_held("desk")
    assert saves.versions()["desk"] == 2


@pytest.mark.slow
async def test_a_reload_or_a_restart_of_one_agent_lets_that_one_through(saves: GatedSaves) -> None:
    late = module("late", "Birch.")
    saves.desk("Birch.")
    saves.write("agents/late.py", late)
    await saves.is_held("desk", "late")
    event = await saves.outcome("late")
    assert (event.outcome, event.error) == ("held", "desk, which it needs, is held back")
    saves.fleet.control("desk", "reload")
    await saves.is_live("late", 1)  # nothing holds it back any more
    assert saves.versions()["desk"] == 2
    assert saves.held() == ()
    saves.desk("Apple.", "\n# the same for its callers\n")
    await saves.is_live("desk", 2)
    saves.desk("Birch.")
    await saves.is_held("desk")
    saves.fleet.control("desk", "restart")
    await saves.is_live("desk", 3)
    await saves.is_held()
    assert await saves.says("desk", ERAS[0]) == "Birch. 1"


@pytest.mark.slow
async def test_it_is_told_once_and_again_with_each_save_of_its_own(saves: GatedSaves) -> None:
    saves.desk("Birch.")
    await saves.is_held("desk")
    ran = saves.tests.runs
    saves.write("agents/other.py", module("other", "Birch."))
    await saves.is_live("other", 1)
    await until(lambda: saves.tests.runs == ran + 1 and not saves.busy())
    assert [each.outcome for each in saves.told() if each.agent == "desk"] == ["held"]
    saves.desk("Birch.", "\n# saved once more\n")
    await until(lambda: [each.outcome for each in saves.told() if each.agent == "desk"] == ["held", "held"])


@pytest.mark.slow
async def test_another_recording_of_the_test_lets_the_version_go_live(saves: GatedSaves) -> None:
    (saves.root / "tests" / "agents" / "through.yaml").unlink()
    saves.desk("Birch.")
    await saves.is_held("desk")
    assert (await saves.outcome("desk")).error.startswith("1 of 1 test fails: hello (")
    replace_test(saves.root, saves.root / "birch")
    await saves.is_live("desk", 1)
    for era in ERAS:
        assert await saves.says("desk", era) == "Birch. 1"


@pytest.mark.slow
async def test_a_module_that_only_the_held_version_imports_is_tested_when_it_is_saved(
    saves: GatedSaves,
) -> None:
    source = "from agents.words import WORD\n" + module("desk", "@").replace('"@"', "WORD").replace(
        "'@'", "WORD"
    )
    saves.write("agents/words.py", "WORD = 'Birch.'\n")
    saves.write("agents/desk.py", source)
    await saves.is_held("desk")
    saves.write("agents/words.py", "WORD = 'Apple.'\n")
    await saves.is_live("desk", 1)
    assert await saves.says("desk", ERAS[0]) == "Apple. 1"


async def test_without_a_recorded_test_nothing_is_run_and_nothing_held(saves: GatedSaves) -> None:
    ran = saves.tests.runs
    tests = saves.root / "tests" / "agents"
    (tests / "through.yaml").unlink()
    (tests / "hello.yaml").write_text("agent: desk\nask: hello\n")
    saves.desk("Birch.")
    await saves.is_live("desk", 1)
    saves.edit("agents.yaml", lambda content: content["agents"]["desk"].update(title="The desk"))
    await until(lambda: saves.fleet.project.agents["desk"].title == "The desk")
    script = saves.root / "model.yaml"
    saves.write("model.yaml", script.read_text().replace("Birch. {{", "Still birch. {{"))
    await until(lambda: any(each.files == ("model.yaml",) for each in saves.told()))
    assert await saves.says("desk", ERAS[0]) == "Still birch. 1"
    assert saves.tests.runs == ran


@pytest.mark.slow
async def test_one_save_adds_an_agent_and_changes_one_that_passes(saves: GatedSaves) -> None:
    saves.fleet.control_fleet("pause")  # so that one reload sees all of it
    saves.write("agents/added.py", module("added", "Cherry."))
    saves.desk("Apple.", "\n# the same for its callers\n")
    saves.edit(
        "agents.yaml",
        lambda content: content["agents"].update(added={"module": "agents.added", "port": free_port()}),
    )
    saves.fleet.control_fleet("resume")
    await saves.is_live("desk", 1)
    await until(lambda: "added" in saves.versions() and not saves.busy())
    assert saves.held() == ()


@pytest.mark.slow
async def test_the_gate_opens_and_closes_with_a_save(saves: GatedSaves) -> None:
    saves.desk("Birch.")
    await saves.is_held("desk")
    saves.gate("none")
    await saves.is_live("desk", 1)
    assert any(change.name == "reload" for each in saves.told() for change in each.changes)
    saves.gate("tests")
    await until(lambda: saves.fleet.project.reload.gate == "tests" and not saves.busy())
    saves.desk("Apple.", "\n# passes\n")
    await saves.is_live("desk", 2)
    saves.desk("Birch.")
    await saves.is_held("desk")


@pytest.mark.slow
async def test_tests_that_cannot_be_read_or_run_hold_back_and_say_why(
    saves: GatedSaves, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = saves.root / "tests" / "agents" / "hello.yaml"
    good = path.read_text()
    path.write_text("agent: nobody\nask: hello\n")
    saves.desk("Apple.", "\n# fine\n")
    await saves.is_held("desk")
    event = await saves.outcome("desk")
    assert event.error.startswith("its tests could not be run: ")
    assert "hello.yaml:1: agent: nobody is no agent of this project" in event.error
    assert event.tests == ()
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr("sys.executable", str(slow))
        saves.edit("agents.yaml", lambda content: content["reload"].update(timeout=1))
        path.write_text(good)
        saves.desk("Apple.", "\n# still fine\n")
        late = await until(lambda: [each for each in saves.told() if "within 1 s" in each.error])
    assert (late[0].agent, late[0].outcome) == ("desk", "held")
    assert not [each for each in psutil.Process().children() if each.name() == "sleep"]
    assert await saves.says("desk", ERAS[0]) == "Apple. 1"
    saves.edit("agents.yaml", lambda content: content["reload"].update(timeout=60))
    await saves.is_live("desk", 1)


class BrokenTests(CountedTests):
    """They cannot be found, then not be run, for a reason that nobody thought of."""

    def __init__(self) -> None:
        super().__init__()
        self.is_found = True

    async def leading_to(self, project: Project, agents: Collection[str]) -> Mapping[str, frozenset[str]]:
        if not self.is_found:
            raise OSError("no such disk")
        return await super().leading_to(project, agents)

    async def failing(self, root: Path, names: Collection[str], timeout: float) -> Sequence[HoldingTest]:
        raise RuntimeError("no such program")


async def test_what_nobody_thought_of_lets_nothing_through(root: Path) -> None:
    tests = BrokenTests()
    async with gated(root, tests) as saves:
        tests.is_found = False
        saves.desk("Birch.")
        await saves.is_held("desk")
        assert (await saves.outcome("desk")).error.endswith(
            "could not be run: OSError; the log has the details"
        )
        tests.is_found = True
        saves.desk("Birch.", "\n# again\n")
        await until(lambda: any("RuntimeError; the log" in each.error for each in saves.told()))
        assert saves.versions()["desk"] == 1


class WaitingTests(CountedTests):
    """Their process waits to be started."""

    def __init__(self) -> None:
        super().__init__()
        self.may_run = asyncio.Event()

    async def failing(self, root: Path, names: Collection[str], timeout: float) -> Sequence[HoldingTest]:
        self.runs += 1
        await self.may_run.wait()
        return await super().failing(root, names, timeout)


def under_test(saves: GatedSaves) -> tuple[str, ...]:
    watch = saves.fleet.snapshot().watch
    return watch.testing if watch is not None else ()


@pytest.mark.slow
async def test_files_saved_while_tests_run_are_tested_before_they_go_live(root: Path) -> None:
    tests = WaitingTests()
    async with gated(root, tests) as saves:
        saves.desk("Apple.", "\n# passes\n")
        await until(lambda: under_test(saves) == ("desk",))
        saves.desk("Birch.")
        await until(lambda: tests.runs == 2 and under_test(saves))
        assert saves.versions()["desk"] == 1
        tests.may_run.set()
        await saves.is_held("desk")
        assert under_test(saves) == ()
        assert await saves.says("desk", ERAS[0]) == "Apple. 1"
        assert [each.outcome for each in saves.told() if each.agent == "desk"] == ["held"]


@pytest.mark.slow
async def test_a_version_whose_tests_were_cut_goes_live_once_it_passes_though_one_it_needs_had_failed(
    root: Path, tmp_path: Path
) -> None:
    tests, flag = WaitingTests(), tmp_path / "flag"
    async with gated(root, tests) as saves:
        flag.touch()
        saves.desk("Apple.", f"\nimport os\n\nassert not os.path.exists({str(flag)!r})\n")
        await until(lambda: under_test(saves))
        saves.fleet.control_fleet("reload")
        await until(lambda: "failed" in [each.outcome for each in saves.told() if each.agent == "desk"])
        await until(lambda: not saves.busy())
        flag.unlink()  # nobody watches it: the desk is as it was
        tests.runs = 0
        for number in (1, 2):
            saves.write("agents/front.py", module("front", "Ask desk.", ("desk",)) + f"\n# {number}\n")
            await until(lambda number=number: tests.runs == number and under_test(saves))
        tests.may_run.set()
        await saves.is_live("front", 1)


@pytest.mark.slow
async def test_a_module_saved_while_tests_run_that_the_next_version_imports_is_tested(root: Path) -> None:
    tests = WaitingTests()
    async with gated(root, tests) as saves:
        saves.write("agents/words.py", "WORD = 'Apple.'\n")
        saves.desk("Apple.", "\nfrom agents.words import WORD\n\nassert WORD == 'Apple.'\n")
        await until(lambda: under_test(saves))
        saves.write("agents/words.py", "WORD = 'Birch.'\n")
        tests.may_run.set()
        await saves.is_held("desk")
        assert saves.versions()["desk"] == 1


async def test_a_reload_while_tests_run_waits_for_none_of_them(root: Path) -> None:
    tests = WaitingTests()
    async with gated(root, tests) as saves:
        saves.desk("Birch.")
        await until(lambda: under_test(saves))
        saves.fleet.control_fleet("reload")
        await saves.is_live("desk", 1)
        assert under_test(saves) == saves.held() == ()
        saves.desk("Apple.")
        await until(lambda: under_test(saves))
        saves.fleet.control("desk", "reload")
        await saves.is_live("desk", 2)
        assert await saves.says("desk", ERAS[0]) == "Apple. 1"
        tests.may_run.set()
        await saves.is_held()


async def test_the_process_of_the_tests_ends_with_the_fleet(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    me = psutil.Process()

    def sleeps() -> list[psutil.Process]:
        return [each for each in me.children() if each.name() == "sleep"]

    async with gated(root) as saves:
        monkeypatch.setattr("sys.executable", str(slow))
        saves.desk("Birch.")
        await until(sleeps)
    await until(lambda: not sleeps())


@pytest.mark.slow
async def test_an_agent_that_does_not_answer_needs_no_test_to_be_repaired(root: Path) -> None:
    good = (root / "agents" / "desk.py").read_text()
    tests = CountedTests()
    async with gated(root, tests) as saves:
        saves.write("agents/desk.py", "raise ValueError\n")
        await saves.is_held("desk")
        saves.fleet.control("desk", "restart")
        await until(lambda: saves.fleet.snapshot().agents[0].state.value == "error")
        ran = tests.runs
        saves.write("agents/desk.py", good.replace("Apple.", "Birch."))
        await until(lambda: saves.fleet.snapshot().agents[0].state.value == "ready")
        assert tests.runs == ran
        await saves.is_held()


@pytest.mark.slow
async def test_a_person_reads_what_is_held_back_and_a_hangup_lets_it_through(root: Path) -> None:
    file = root / "agents" / "desk.py"

    async def says(fleet: Served, era: str) -> str:
        async with fleet.client("desk", era) as caller:
            return await ask(caller, "hello")

    with served(root, "--watch") as fleet:
        await fleet.says("] running")
        file.write_text(module("desk", "Birch."))
        line = await fleet.says("held back")
        assert line.startswith(
            "[test] warning: desk: version held back (agents/desk.py): 2 of 2 tests fail: hello (recording: "
        )
        assert line.endswith("), through; reload lets it through")
        assert line in fleet.err
        assert (await fleet.get("/readyz")).status_code == 200
        for era in ERAS:
            assert await says(fleet, era) == "Apple. 1"
        fleet.send(signal.SIGHUP)
        await fleet.says("desk: version 2 is live")
        for era in ERAS:
            assert await says(fleet, era) == "Birch. 1"
