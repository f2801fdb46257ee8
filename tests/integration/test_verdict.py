"""On each save: which kept runs would go differently, through all agents, with no tool executed."""

import json
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from support.gated import GatedSaves, gated, judging
from support.judged import entry, executed, judged_project
from support.offline import model_record
from support.served import served
from support.surfaces import command
from support.waiting import until

from pallas.fleet.reload.reload_report import verdict_line
from pallas.ledger import Ledger
from pallas.model import RunRequest, RunVerdict, VerdictWord

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return await judged_project(tmp_path_factory.mktemp("judged") / "p")


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy of the project, for one test."""
    return Path(shutil.copytree(made, tmp_path / "p"))


@pytest_asyncio.fixture(loop_scope="module")
async def saves(root: Path) -> AsyncIterator[GatedSaves]:
    async with gated(root) as saves:
        yield saves


@dataclass(frozen=True)
class Files:
    """The files of a project that no fleet serves."""

    root: Path

    def write(self, path: str, text: str) -> None:
        """Write one."""
        (self.root / path).write_text(text)


def replaced(path: str, old: str, new: str) -> Callable[[GatedSaves | Files], None]:
    """Save a file with another text in the place of one."""

    def save(saves: GatedSaves | Files) -> None:
        text = (saves.root / path).read_text("utf-8")
        assert old in text
        saves.write(path, text.replace(old, new))

    return save


def edited(path: str, change: Callable[[dict[str, Any]], object]) -> Callable[[GatedSaves], None]:
    """Save a YAML file with a change."""
    return lambda saves: saves.edit(path, lambda content: change(content) and None)


def both(*all_of: Callable[[GatedSaves], None]) -> Callable[[GatedSaves], None]:
    """Save one after the other."""

    def save(saves: GatedSaves) -> None:
        for each in all_of:
            each(saves)

    return save


@dataclass(frozen=True)
class Planted:
    """A save, the word of its verdict, and what is said of the first difference."""

    save: Callable[[GatedSaves], None]
    word: VerdictWord
    where: str = ""
    what: str = ""


PROMPT = Planted(
    replaced("agents/clerk.py", "You are clerk.", "You are clerk. Be brief."),
    "other words",
    "step 1 of clerk",
    "another model request: messages[0].content",
)
PLANTED = {
    "prompt": PROMPT,
    "renamed function": Planted(
        replaced("agents/lead.py", "price", "cost_of"),
        "other tool calls",
        "step 1 of lead",
        "the tool price, which was called in step 4, is not offered any more",
    ),
    "wrong schema": Planted(
        replaced("agents/lead.py", "item: str", "item: int"),
        "other tool calls",
        "step 1 of lead",
        "the tool price does not take the arguments of step 4 any more: $.item: 'lamps' is not of type",
    ),
    "lost function": Planted(
        replaced("agents/lead.py", ", function_tools=[price]", ""),
        "other tool calls",
        "step 1 of lead",
        "the tool price, which was called",
    ),
    "wrong agent": Planted(
        edited("agents.yaml", lambda content: entry(content, "lead").update(peers=["other"])),
        "other tool calls",
        "step 1 of lead",
        "the tool keeper, which was called in step 3, is not offered any more",
    ),
    "parameter": Planted(
        edited("agents.yaml", lambda content: entry(content, "clerk").update(params={"temperature": 0.5})),
        "other words",
        "step 1 of clerk",
        "temperature",
    ),
    "broken module": Planted(
        replaced("agents/keeper.py", "@fast.agent", "nonsense()\n\n\n@fast.agent"),
        "fails",
        "keeper",
        "agents/keeper.py:7: NameError",
    ),
    "skill": Planted(
        replaced("skills/counting/SKILL.md", "How to count things", "How to count"),
        "other words",
        "step 1 of clerk",
        "messages[0].content",
    ),
    "description": Planted(
        edited("agents.yaml", lambda content: entry(content, "keeper").update(description="Keeps lamps.")),
        "other words",
        "step 1 of lead",
        "description",
    ),
    "model": Planted(
        replaced("agents/clerk.py", 'skills=["skills"]', 'skills=["skills"], model="generic.other"'),
        "other words",
        "step 1 of clerk",
        "model",
    ),
    "server": Planted(
        replaced("shelf.py", "def find(", "def search("),
        "other tool calls",
        "step 1 of clerk",
        "the tool shelf__find, which was called in step 2, is not offered any more",
    ),
    "expectation": Planted(
        both(
            replaced("tests/agents/lamps.yaml", "All in all", "None at all"),
            replaced("agents/clerk.py", "async def main", "# a comment\nasync def main"),
        ),
        "fails",
        "lead",
        "expected: answer.contains",
    ),
}


async def verdict_on(saves: GatedSaves, save: Callable[[GatedSaves], None]) -> RunVerdict:
    """What is said of the only test after a save."""
    known = len(saves.verdicts())
    save(saves)
    verdict = await saves.verdict(known)
    assert not verdict.problem, verdict.problem
    (run,) = verdict.runs
    return run


async def planted(saves: GatedSaves, name: str) -> None:
    """Save one of them, and check what is said of it."""
    wanted, run = PLANTED[name], await verdict_on(saves, PLANTED[name].save)
    assert (run.word, run.where) == (wanted.word, wanted.where), run.line
    assert wanted.what in run.what, run.line


async def test_a_changed_prompt_is_said_with_both_values_and_goes_live_at_once(root: Path) -> None:
    async with gated(root, database="memory") as saves:
        await said_of_a_prompt(saves)


async def said_of_a_prompt(saves: GatedSaves) -> None:
    """The verdict on a prompt; the fleet itself is as before."""
    run = await verdict_on(saves, PROMPT.save)
    assert (run.name, run.source, run.agent, run.agents) == ("lamps", "test", "lead", ("clerk",))
    assert run.word == "other words"
    assert (run.before[:16], run.after[:27]) == ('"You are clerk.\\', '"You are clerk. Be brief.\\n')
    assert run.after_text == run.before_text.replace("You are clerk.", "You are clerk. Be brief.")
    assert run.before_text.startswith("You are clerk.\n")
    await saves.is_live("clerk", 1)
    event = saves.verdicts()[0]
    assert (event.counts, event.files, event.is_held) == ({"other words": 1}, ("agents/clerk.py",), False)
    assert verdict_line(event).startswith(
        "saved agents/clerk.py: 1 other words (lamps: step 1 of clerk: another model request: messages[0]"
    )
    assert executed(saves.root) == []
    assert model_record(saves.fleet).calls == 0
    assert saves.fleet.ledger is not None
    assert (await saves.fleet.ledger.runs.list()).items == ()
    assert {agent.health.status.value for agent in saves.fleet.snapshot().agents} == {"ok"}


@pytest.mark.slow
async def test_each_planted_regression_has_its_word_and_place(saves: GatedSaves, made: Path) -> None:
    for name in [*PLANTED][1:]:
        await planted(saves, name)
        undone = await verdict_on(saves, lambda saves: undo(saves, made))
        assert undone.word == "same", (name, undone.line)
    assert executed(saves.root) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_each_planted_regression_is_held_back_until_it_is_undone(root: Path, tmp_path: Path) -> None:
    replaced("agents.yaml", "gate: warn", "gate: hold")(Files(root))
    made = Path(shutil.copytree(root, tmp_path / "as it was made"))
    async with gated(root) as saves:
        for name in PLANTED:
            live = saves.versions()
            await planted(saves, name)
            await until(lambda: not saves.busy())
            assert saves.verdicts()[-1].is_held, name
            assert saves.held(), name
            assert saves.versions() == live, name
            undone = await verdict_on(saves, lambda saves: undo(saves, made))
            assert undone.word == "same", (name, undone.line)
            await saves.is_held()
        assert executed(root) == []


def undo(saves: GatedSaves, made: Path) -> None:
    """Save each changed file as it was."""
    for file in [each for each in made.rglob("*") if each.suffix in (".py", ".yaml", ".md")]:
        path = file.relative_to(made)
        if file.read_text() != (saves.root / path).read_text():
            saves.write(str(path), file.read_text())


@pytest.mark.slow
async def test_a_title_is_seen_by_the_models_that_call_its_agent_by_url(saves: GatedSaves) -> None:
    save = edited("agents.yaml", lambda content: entry(content, "clerk").update(title="The clerk"))
    run = await verdict_on(saves, save)
    assert (run.word, run.where) == ("other words", "step 1 of lead"), run.line
    assert "description" in run.what
    assert "The clerk" in run.after


@pytest.mark.slow
async def test_harmless_saves_raise_no_alarm(saves: GatedSaves) -> None:
    comment = replaced("agents/lead.py", "async def main", "# a comment\nasync def main")
    layout = replaced("agents/lead.py", 'instruction="You are lead."', "instruction='You are lead.'")
    for save in (comment, layout):
        assert (await verdict_on(saves, save)).word == "same"
    known = len(saves.verdicts())
    saves.edit(
        "agents.yaml", lambda content: content.update(agents=dict(reversed(content["agents"].items())))
    )
    replaced("agents/other.py", "You are other.", "You are another.")(saves)
    await saves.is_live("other", 1)
    await saves.settled()
    assert len(saves.verdicts()) == known
    assert executed(saves.root) == []


@pytest.mark.slow
async def test_a_second_save_cancels_the_first_verdict_and_both_are_judged(saves: GatedSaves) -> None:
    replaced("agents/keeper.py", "@fast.agent", "import time\n\ntime.sleep(600)\n\n\n@fast.agent")(saves)
    await until(lambda: len(judging(saves.root)) >= 2)  # the one that forks; forks
    first, *forks = sorted(judging(saves.root), key=lambda each: each.create_time())
    replaced("agents/keeper.py", "time.sleep(600)", "time.sleep(0)")(saves)
    verdict = await saves.verdict()
    assert verdict.agents == ("keeper",)
    assert verdict.counts == {"same": 1}
    assert first.is_running()
    assert [each for each in forks if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.slow
async def test_with_hold_the_old_version_answers_until_the_author_lets_the_new_one_through(
    root: Path,
) -> None:
    replaced("agents.yaml", "gate: warn", "gate: hold")(Files(root))
    async with gated(root) as saves:
        replaced("agents/lead.py", "price", "cost_of")(saves)
        await saves.is_held("lead")
        held, verdict = await saves.outcome("lead"), saves.verdicts()[0]
        assert (verdict.is_held, verdict.counts) == (True, {"other tool calls": 1})
        assert held.error.startswith(
            "1 of 1 run would go differently: lamps (other tool calls: step 1 of lead"
        )
        saves.fleet.control_fleet("reload")
        await saves.is_live("lead", 1)
        assert saves.held() == ()
        verdict = await saves.verdict(1)
        assert (verdict.is_held, verdict.agents, verdict.counts) == (
            False,
            ("lead",),
            {"other tool calls": 1},
        )
        assert verdict_line(verdict).startswith("reloaded lead: 1 other tool calls (lamps: ")
        assert executed(root) == []


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["warn", "hold"])
async def test_a_reload_that_is_asked_for_goes_live_at_once_and_its_verdict_is_told(
    root: Path, gate: str
) -> None:
    replaced("agents.yaml", "gate: warn", f"gate: {gate}")(Files(root))
    async with gated(root) as saves:
        saves.fleet.control_fleet("pause")
        PROMPT.save(saves)
        saves.fleet.control_fleet("reload")
        verdict = await saves.verdict()
        assert (verdict.counts, verdict.agents, verdict.is_held) == ({"other words": 1}, ("clerk",), False)
        assert verdict_line(verdict).startswith("saved agents/clerk.py: 1 other words (lamps: ")
        await until(lambda: saves.versions()["clerk"] > 1)
        replaced("agents/keeper.py", "You are keeper.", "You are a keeper.")(saves)
        saves.fleet.control("keeper", "reload")
        verdict = await saves.verdict(1)
        assert (verdict.counts, verdict.agents, verdict.is_held) == ({"other words": 1}, ("keeper",), False)
        assert verdict_line(verdict).startswith("reloaded keeper: 1 other words (lamps: step 1 of keeper: ")
        await until(lambda: saves.versions()["keeper"] > 1)
        assert saves.held() == ()
        saves.fleet.control("keeper", "rollback")
        await until(lambda: any(each.rolled_back for each in saves.told()))
        assert len(saves.verdicts()) == 2
        assert executed(root) == []


@pytest.mark.slow
async def test_the_last_runs_of_each_agent_are_judged_where_they_are_wanted(root: Path) -> None:
    for test in (root / "tests" / "agents").glob("*.yaml"):
        test.unlink()
    replaced("agents.yaml", "gate: warn", "gate: warn\n  recent: 2")(Files(root))
    async with gated(root, database="memory") as saves:
        for number, text in enumerate(("first", "second", "second", "third")):
            await saves.fleet.kernel.run(RunRequest("other", text, run_id=f"run-{number}"))
        ledger = saves.fleet.ledger
        assert ledger is not None
        known = await until(lambda: stored_runs(ledger, 4))
        replaced("agents/other.py", "You are other.", "You are another.")(saves)
        verdict = await saves.verdict()
        assert verdict.counts == {"other words": 2}
        assert {(each.source, each.agent) for each in verdict.runs} == {("run", "other")}
        assert {each.name for each in verdict.runs} == {"run-3", "run-2"}
        assert await stored_runs(ledger, 4) == known


@pytest.mark.slow
async def test_later_turns_are_judged_with_what_was_said_before(root: Path) -> None:
    for test in (root / "tests" / "agents").glob("*.yaml"):
        test.unlink()
    replaced("agents.yaml", "gate: warn", "gate: warn\n  recent: 3")(Files(root))
    async with gated(root, database="memory") as saves:
        for number, text in enumerate(("first", "second", "third"), 1):
            asked = RunRequest("other", text, run_id=f"turn-{number}", conversation="one")
            assert (await saves.fleet.kernel.run(asked)).text == f"turn {number}"
        ledger = saves.fleet.ledger
        assert ledger is not None
        await until(lambda: stored_runs(ledger, 3))
        replaced("agents/other.py", "async def main", "# a comment\nasync def main")(saves)
        assert (await saves.verdict()).counts == {"same": 3}
        await until(lambda: not saves.busy())
        replaced("agents/other.py", "You are other.", "You are another.")(saves)
        verdict = await saves.verdict(1)
        assert {(each.name, each.word, each.where) for each in verdict.runs} == {
            (f"turn-{number}", "other words", "step 1 of other") for number in (1, 2, 3)
        }
        assert {each.what for each in verdict.runs} == {"another model request: messages[0].content"}
        assert executed(root) == []


async def stored_runs(ledger: Ledger, count: int) -> list[str]:
    """The ids of all runs that the ledger has; none until there are so many."""
    runs = [run.id for run in (await ledger.runs.list()).items]
    return runs if len(runs) >= count else []


@pytest.mark.slow
async def test_a_verdict_is_asked_for_at_the_fleet_and_without_one_made(root: Path) -> None:
    status, out, err = await command("verdict", "-p", str(root))
    assert (status, err) == (0, "")
    assert out.splitlines()[1].split() == ["lamps", "same"]
    assert out.splitlines()[-1].startswith("1 same in ")
    replaced("agents/lead.py", "price", "cost_of")(Files(root))
    status, out, _ = await command("verdict", "-p", str(root), "--json")
    (run,) = json.loads(out)["runs"]
    assert (status, run["word"], run["where"]) == (1, "other tool calls", "step 1 of lead")
    with served(root, "--watch") as fleet:
        await fleet.says("] running")
        await until(lambda: len(judging(root)) >= 1)
        replaced("agents/clerk.py", "You are clerk.", "You are clark.")(Files(root))
        line = await fleet.says("saved agents/clerk.py: 1 other words")
        assert line.startswith(
            "[test] warning: saved agents/clerk.py: 1 other words (lamps: step 1 of clerk: "
        )
        status, out, err = await command("verdict", "-p", str(root), "--json")
        asked = json.loads(out)
        assert (status, err) == (1, "")
        assert (asked["files"], asked["agents"], asked["counts"]) == (
            ["agents/clerk.py"],
            ["clerk"],
            {"other words": 1},
        )
        fleet.send(signal.SIGKILL)
        await until(lambda: not judging(root))
    assert executed(root) == []
    (root / "agents.yaml").write_text("name: [")
    status, _, err = await command("verdict", "-p", str(root))
    assert status == 2
    assert "agents.yaml:1" in err
