"""With ``verdict: {gate: hold}`` a version is held back with which a kept test would go differently."""

import asyncio
import logging
import shutil
import signal
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.gated import CountedJudge, GatedSaves, gated, gated_project, judging, replace_test
from support.live import ERAS, ask
from support.offline import model_record
from support.reloading import module
from support.replayed import recorded
from support.served import Served, served
from support.waiting import until

from pallas.agent_tests.kept_test import keep
from pallas.config import Project
from pallas.config.ports import free_port
from pallas.fleet import swap
from pallas.fleet.reload.reload_report import report_line
from pallas.fleet.reload.verdict_judge import JudgeRequest, LeadingRun
from pallas.model import Change, RunVerdict, VerdictBegun, VerdictProgress, VerdictReached

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


@contextmanager
def listed_late(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within it no version is reported that answers: what changed in it is not known yet."""
    known, differences = threading.Event(), swap.differences

    def late(*versions: Any) -> tuple[Change, ...]:
        known.wait(120)
        return differences(*versions)

    monkeypatch.setattr(swap, "differences", late)
    try:
        yield
    finally:
        known.set()


@pytest.mark.slow
async def test_what_breaks_a_test_is_held_back_until_a_save_repairs_it(
    saves: GatedSaves, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pallas.fleet.reload")
    saves.desk("Birch.")
    saves.write("agents/other.py", module("other", "Birch."))
    await saves.is_held("desk")
    assert saves.judge.names == {"hello", "through"}
    for era in ERAS:
        assert await saves.says("desk", era) == "Apple. 1"
        assert await saves.says("front", era) == "desk says Apple. 1"
        assert await saves.says("other", era) == "Birch. 1"
    event = await saves.outcome("desk")
    assert (event.outcome, event.version, event.files) == ("held", 1, ("agents/desk.py",))
    assert [each.name for each in event.tests] == ["hello", "through"]
    assert all('messages[0].content is "Birch."' in each.why for each in event.tests)
    assert event.error.startswith("2 of 2 runs would go differently: hello (other words: ")
    assert event.error.endswith("), through")
    assert [line.partition(": ")[0] for line in event.story.splitlines()] == ["hello", "through"]
    assert [change.name for change in event.changes] == ["agents/desk.py"]
    assert "+" in event.changes[0].diff
    line = report_line(event)
    assert line.startswith(
        "desk: version held back (agents/desk.py): 2 of 2 runs would go differently: hello ("
    )
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
    ran = saves.judge.runs
    saves.fleet.control_fleet("reload")
    await saves.is_live("desk", 1)
    assert saves.held() == ()
    await until(lambda: saves.judge.runs == ran + 1 and not saves.verdicts()[-1].is_held)  # told beside it
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
    ran = saves.judge.runs
    saves.write("agents/other.py", module("other", "Birch."))
    await saves.is_live("other", 1)
    await until(lambda: saves.judge.runs == ran + 1 and not saves.busy())
    assert [each.outcome for each in saves.told() if each.agent == "desk"] == ["held"]
    saves.desk("Birch.", "\n# saved once more\n")
    await until(lambda: [each.outcome for each in saves.told() if each.agent == "desk"] == ["held", "held"])


@pytest.mark.slow
async def test_another_recording_of_the_test_lets_the_version_go_live(saves: GatedSaves) -> None:
    (saves.root / "tests" / "agents" / "through.yaml").unlink()
    saves.desk("Birch.")
    await saves.is_held("desk")
    assert (await saves.outcome("desk")).error.startswith("1 of 1 run would go differently: hello (")
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
    ran = saves.judge.runs
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
    assert saves.judge.runs == ran


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


def temperatures(saves: GatedSaves) -> list[float | None]:
    """What the model was asked with, of each question so far."""
    return [body.get("temperature") for body in model_record(saves.fleet).requests]


def warmer(content: dict[str, Any]) -> None:
    content["agents"]["desk"]["params"] = {"temperature": 0.5}


@pytest.mark.slow
async def test_parameters_wait_for_the_verdict_though_they_need_no_version(saves: GatedSaves) -> None:
    saves.edit("agents.yaml", warmer)
    await saves.is_held("desk")
    event = await saves.outcome("desk")
    assert (event.outcome, event.version) == ("held", 1)
    assert [each.name for each in event.changes] == ["agents.desk.params"]
    assert not any(each.outcome == "live" and each.files == ("agents.yaml",) for each in saves.told())
    saves.write("agents/other.py", module("other", "Birch."))
    await saves.is_live("other", 1)
    await saves.is_held("desk")
    for era in ERAS:
        assert await saves.says("desk", era) == "Apple. 1"
    assert temperatures(saves) == [None, None]
    saves.fleet.control_fleet("reload")
    await saves.is_held()
    await saves.is_live("desk", 1)
    assert await saves.says("desk", ERAS[0]) == "Apple. 1"
    assert temperatures(saves)[-1] == 0.5
    saves.edit("agents.yaml", lambda content: content["agents"]["desk"].pop("params") and None)
    await saves.is_live("desk", 2)
    assert await saves.says("desk", ERAS[0]) == "Apple. 1"
    assert temperatures(saves)[-1] is None


@pytest.mark.slow
async def test_a_description_waits_for_the_runs_whose_models_see_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = root / "agents.yaml"
    agents.write_text(agents.read_text().replace("  other:\n", "  other:\n    peers: [desk]\n"))
    for each in ("hello", "through"):
        (root / "tests" / "agents" / f"{each}.yaml").unlink()
    await asyncio.to_thread(keep, await recorded(root, "other", "hello"), root, "peer")
    async with gated(root) as saves:

        def described(text: str) -> None:
            saves.edit("agents.yaml", lambda content: content["agents"]["desk"].update(description=text))

        described("Answers all.")
        await saves.is_held("desk", "front")  # the run of other has neither; front calls desk by URL
        verdict = await saves.verdict()
        assert (verdict.is_held, [each.name for each in verdict.runs]) == (True, ["peer"])
        assert await saves.says("other", ERAS[0]) == "Apple. 1"
        (tool,) = model_record(saves.fleet).requests[-1]["tools"]
        assert "Answers all." not in tool["function"]["description"]
        with listed_late(monkeypatch):  # desk answers, and its fleet has not taken that over
            saves.fleet.control("desk", "reload")
            await until(lambda: saves.versions()["front"] == 2)
        await saves.is_held()
        await until(lambda: saves.fleet.project.agents["desk"].description == "Answers all.")
        assert await saves.says("other", ERAS[0]) == "Apple. 1"
        (tool,) = model_record(saves.fleet).requests[-1]["tools"]
        assert "Answers all." in tool["function"]["description"]


@pytest.mark.slow
async def test_the_gate_opens_and_closes_with_a_save(saves: GatedSaves) -> None:
    saves.desk("Birch.")
    await saves.is_held("desk")
    saves.gate("off")
    await saves.is_live("desk", 1)
    assert any(change.name == "verdict" for each in saves.told() for change in each.changes)
    saves.gate("hold")
    await until(lambda: saves.fleet.project.verdict.gate == "hold" and not saves.busy())
    saves.desk("Apple.", "\n# passes\n")
    await saves.is_live("desk", 2)
    saves.desk("Birch.")
    await saves.is_held("desk")


@pytest.mark.slow
async def test_tests_that_cannot_be_read_or_run_hold_back_and_say_why(
    saves: GatedSaves,
) -> None:
    path = saves.root / "tests" / "agents" / "hello.yaml"
    good = path.read_text()
    path.write_text("agent: nobody\nask: hello\n")
    saves.desk("Apple.", "\n# fine\n")
    await saves.is_held("desk")
    event = await saves.outcome("desk")
    assert event.error.startswith("recorded runs could not be judged: ")
    assert "hello.yaml:1: agent: nobody is not an agent of this project" in event.error
    assert event.tests == ()
    saves.edit("agents.yaml", lambda content: content["verdict"].update(timeout=1))
    path.write_text(good)
    saves.desk("Apple.", "\nimport time\n\ntime.sleep(600)\n")
    late = await until(lambda: [each for each in saves.told() if "within 1 s" in each.error])
    assert (late[0].agent, late[0].outcome) == ("desk", "held")
    await until(lambda: len(judging(saves.root)) == 1)  # the one that forks
    saves.desk("Apple.", "\n# fine\n")
    assert await saves.says("desk", ERAS[0]) == "Apple. 1"
    saves.edit("agents.yaml", lambda content: content["verdict"].update(timeout=60))
    await saves.is_live("desk", 1)


class BrokenJudge(CountedJudge):
    """Its tests cannot be found, then not be run, for a reason that nobody thought of."""

    def __init__(self) -> None:
        super().__init__()
        self.is_found = True

    async def tests_leading_to(self, project: Project, agents: Collection[str]) -> Sequence[LeadingRun]:
        if not self.is_found:
            raise OSError("no such disk")
        return await super().tests_leading_to(project, agents)

    async def verdicts(self, request: JudgeRequest) -> AsyncGenerator[RunVerdict]:
        raise RuntimeError("no such program")
        yield


async def test_what_nobody_thought_of_lets_nothing_through(root: Path) -> None:
    judge = BrokenJudge()
    async with gated(root, judge) as saves:
        judge.is_found = False
        saves.desk("Birch.")
        await saves.is_held("desk")
        assert (await saves.outcome("desk")).error.endswith(
            "could not be judged: OSError; the log has the details"
        )
        judge.is_found = True
        saves.desk("Birch.", "\n# again\n")
        await until(lambda: any("RuntimeError; the log" in each.error for each in saves.told()))
        assert saves.versions()["desk"] == 1


class WaitingJudge(CountedJudge):
    """It waits until it may judge."""

    def __init__(self) -> None:
        super().__init__()
        self.may_run = asyncio.Event()

    async def verdicts(self, request: JudgeRequest) -> AsyncGenerator[RunVerdict]:
        self.runs += 1
        await self.may_run.wait()
        async for verdict in super().verdicts(request):
            yield verdict


def under_test(saves: GatedSaves) -> tuple[str, ...]:
    watch = saves.fleet.snapshot().watch
    return watch.testing if watch is not None else ()


class PausedJudge(CountedJudge):
    """It goes on behind the first run when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = asyncio.Event()

    async def verdicts(self, request: JudgeRequest) -> AsyncGenerator[RunVerdict]:
        async for verdict in super().verdicts(request):
            yield verdict
            await self.may_go_on.wait()


def judging_now(saves: GatedSaves) -> VerdictProgress | None:
    watch = saves.fleet.snapshot().watch
    return watch.judging if watch is not None else None


async def test_how_far_a_verdict_is_can_be_seen_until_it_is_reached_or_given_up(root: Path) -> None:
    judge = PausedJudge()
    async with gated(root, judge) as saves:
        saves.desk("Birch.")
        await until(lambda: judging_now(saves) == VerdictProgress(("desk",), 2, True, 1, 1))
        saves.fleet.control("desk", "reload")  # lets it through, with another verdict beside it
        await until(lambda: judging_now(saves) == VerdictProgress(("desk",), 2, False, 1, 1))
        await until(lambda: saves.versions()["desk"] == 2)  # it was loaded before the next save
        saves.desk("Apple.")
        await until(lambda: judging_now(saves) == VerdictProgress(("desk",), 2, True, 1, 0))
        judge.may_go_on.set()
        reached = await saves.verdict()
        assert judging_now(saves) is None
        told = [
            each
            for each in saves.fleet.hub.since(0).events
            if isinstance(each, VerdictBegun | VerdictReached)
        ]
        begun = [each for each in told if isinstance(each, VerdictBegun)]
        assert told == [*begun, reached]
        assert [(each.agents, each.files, each.is_held, each.runs) for each in begun] == [
            (("desk",), ("agents/desk.py",), True, 2),
            (("desk",), (), False, 2),
            (("desk",), ("agents/desk.py",), True, 2),
        ]
        assert reached.is_same


@pytest.mark.slow
async def test_files_saved_while_tests_run_are_tested_before_they_go_live(root: Path) -> None:
    judge = WaitingJudge()
    async with gated(root, judge) as saves:
        saves.desk("Apple.", "\n# passes\n")
        await until(lambda: under_test(saves) == ("desk",))
        saves.desk("Birch.")
        await until(lambda: judge.runs == 2 and under_test(saves))
        assert saves.versions()["desk"] == 1
        judge.may_run.set()
        await saves.is_held("desk")
        assert under_test(saves) == ()
        assert await saves.says("desk", ERAS[0]) == "Apple. 1"
        assert [each.outcome for each in saves.told() if each.agent == "desk"] == ["held"]


@pytest.mark.slow
async def test_a_version_whose_tests_were_cut_goes_live_once_it_passes_though_one_it_needs_had_failed(
    root: Path, tmp_path: Path
) -> None:
    judge, flag = WaitingJudge(), tmp_path / "flag"
    async with gated(root, judge) as saves:
        flag.touch()
        saves.desk("Apple.", f"\nimport os\n\nassert not os.path.exists({str(flag)!r})\n")
        await until(lambda: under_test(saves))
        saves.fleet.control_fleet("reload")
        await until(lambda: "failed" in [each.outcome for each in saves.told() if each.agent == "desk"])
        await until(lambda: not saves.busy())
        flag.unlink()  # nobody watches it: the desk is as it was
        judge.runs = 0
        for number in (1, 2):
            saves.write("agents/front.py", module("front", "Ask desk.", ("desk",)) + f"\n# {number}\n")
            await until(lambda number=number: judge.runs == number and under_test(saves))
        judge.may_run.set()
        await saves.is_live("front", 1)


@pytest.mark.slow
async def test_a_module_saved_while_tests_run_that_the_next_version_imports_is_tested(root: Path) -> None:
    judge = WaitingJudge()
    async with gated(root, judge) as saves:
        saves.write("agents/words.py", "WORD = 'Apple.'\n")
        saves.desk("Apple.", "\nfrom agents.words import WORD\n\nassert WORD == 'Apple.'\n")
        await until(lambda: under_test(saves))
        saves.write("agents/words.py", "WORD = 'Birch.'\n")
        judge.may_run.set()
        await saves.is_held("desk")
        assert saves.versions()["desk"] == 1


async def test_a_reload_while_tests_run_waits_for_none_of_them(root: Path) -> None:
    judge = WaitingJudge()
    async with gated(root, judge) as saves:
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
        judge.may_run.set()
        await saves.is_held()


async def test_the_processes_that_judge_end_with_the_fleet(root: Path) -> None:
    async with gated(root) as saves:
        saves.write("agents/desk.py", module("desk", "Birch.") + "\nimport time\n\ntime.sleep(600)\n")
        await until(lambda: len(judging(root)) == 2)  # the one that forks, and the fork
    await until(lambda: not judging(root))


@pytest.mark.slow
async def test_an_agent_that_does_not_answer_is_repaired_without_waiting_for_a_verdict(root: Path) -> None:
    good = (root / "agents" / "desk.py").read_text()
    async with gated(root) as saves:
        saves.write("agents/desk.py", "raise ValueError\n")
        await saves.is_held("desk")
        saves.fleet.control("desk", "restart")
        await until(lambda: saves.fleet.snapshot().agents[0].state.value == "error")
        saves.write("agents/desk.py", good.replace("Apple.", "Birch."))
        await until(lambda: saves.fleet.snapshot().agents[0].state.value == "ready")
        await saves.is_held()
        told = await until(lambda: [each for each in saves.verdicts() if not each.is_held])
        assert told[0].counts == {"other words": 2}


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
        held = "[test] warning: desk: version held back (agents/desk.py): 2 of 2 runs would go differently: "
        assert line.startswith(f"{held}hello (other words: step 1 of desk: ")
        assert line.endswith("), through; reload lets it through")
        assert line in fleet.err
        assert (await fleet.get("/readyz")).status_code == 200
        for era in ERAS:
            assert await says(fleet, era) == "Apple. 1"
        fleet.send(signal.SIGHUP)
        await fleet.says("desk: version 2 is live")
        await fleet.says("reloaded desk: 2 other words (hello: step 1 of desk: ")
        for era in ERAS:
            assert await says(fleet, era) == "Birch. 1"
