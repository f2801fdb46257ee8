"""Stage two of a verdict: models are asked from the first request that differs on, and no tool is called."""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
import yaml
from fast_agent.llm.model_database import ModelDatabase
from support.gated import GatedSaves, gated
from support.judged import executed, judged_project
from support.offline import model_record
from support.served import served
from support.surfaces import command
from support.waiting import until

from pallas.fleet.reload.reload_report import verdict_line
from pallas.model import Fault, RunVerdict, VerdictReached
from pallas.scripted.scripted_conversation import read_conversation
from pallas.surfaces.control.token_file import find_tokens

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]

LAMPS = {"agent": "lead", "ask": "How many?", "recording": "lamps.recording"}
CLERK = "You are clerk."


@pytest.fixture(autouse=True)
def as_in_a_new_process() -> None:
    """Forget what other tests said of the model: the process that judges is another one."""
    ModelDatabase.unregister_runtime_model_params("scripted")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ModelDatabase.unregister_runtime_model_params("scripted")
    folder = tmp_path_factory.mktemp("asked")
    root = await judged_project(folder / "p", chief=True, verdict={"live": "always"})
    return Path(shutil.copytree(root, folder / "as it was made"))


@pytest.fixture
def root(made: Path) -> Path:
    """The project as it was made, in its own folder: a prompt with skills says where they are."""
    root = made.with_name("p")
    shutil.rmtree(root)
    shutil.copytree(made, root)
    only(root, "lamps")
    return root


@pytest_asyncio.fixture(loop_scope="module")
async def saves(root: Path) -> AsyncIterator[GatedSaves]:
    async with gated(root, database="memory") as saves:
        yield saves


def only(root: Path, *tests: str) -> None:
    """Keep these tests alone."""
    for file in (root / "tests" / "agents").glob("*.yaml"):
        if file.stem not in tests:
            file.unlink()


def settings(root: Path, verdict: dict[str, Any], **top: Any) -> None:
    """Write another ``verdict:`` into agents.yaml, and other keys."""
    file = root / "agents.yaml"
    content = yaml.safe_load(file.read_text()) | {"verdict": verdict} | top
    file.write_text(yaml.safe_dump(content, sort_keys=False))


def expect(root: Path, expected: dict[str, Any], **more: Any) -> None:
    """Let the test expect this alone; ``more`` are other keys of it."""
    file = root / "tests" / "agents" / "lamps.yaml"
    file.write_text(yaml.safe_dump({**LAMPS, "expect": expected, **more}))


def told(saves: GatedSaves, agent: str, more: str) -> None:
    """Save an agent with a longer instruction."""
    path = f"agents/{agent}.py"
    text = (saves.root.with_name("as it was made") / path).read_text()
    saves.write(path, text.replace(f"You are {agent}.", f"You are {agent}. {more}", 1))


async def asked(saves: GatedSaves, known: int = 0) -> VerdictReached:
    """The next verdict for which models were asked, after ``known`` verdicts."""

    def found() -> VerdictReached | None:
        new = saves.verdicts()[known:]
        return next((each for each in new if each.live == "asked"), None)

    verdict: VerdictReached = await until(found)
    return verdict


async def word_of(saves: GatedSaves, agent: str, more: str) -> RunVerdict:
    """What is said of the only run after models were asked."""
    known = len(saves.verdicts())
    told(saves, agent, more)
    (run,) = (await asked(saves, known)).runs
    return run


async def test_other_words_are_judged_by_the_expectations_of_the_test(saves: GatedSaves) -> None:
    expect(saves.root, {"answer": {"contains": "lamps"}})
    calls = model_record(saves.fleet).calls
    told(saves, "clerk", "Be brief.")
    verdict = await asked(saves)
    (run,) = verdict.runs
    assert (run.word, run.passes, run.where) == ("other words", True, "lead"), run.line
    assert "3 lamps" in run.after
    assert "three lamps, seen" in run.before
    assert run.request.startswith("step 1 of clerk: another model request: messages[0].content is ")
    before = saves.verdicts()[0]
    assert (before.live, before.counts) == ("asking", {"other words": 1})
    # Both of clerk, and lead's second one: it got another result.
    assert before.estimate is not None
    assert (before.estimate.count, before.estimate.cost) == (3, 0)
    assert verdict.asked is not None
    assert (verdict.asked.count, verdict.asked.text) == (3, "3 model calls, $0")
    assert model_record(saves.fleet).calls - calls == 3
    assert "asking models: 3 model calls, $0" in verdict_line(before)
    assert executed(saves.root) == []
    assert saves.fleet.ledger is not None
    assert (await saves.fleet.ledger.runs.list()).items == ()
    assert {agent.health.status.value for agent in saves.fleet.snapshot().agents} == {"ok"}


@pytest.mark.slow
async def test_each_word_of_models_that_were_asked(saves: GatedSaves) -> None:
    expect(saves.root, {"answer": {"contains": "three lamps, seen"}})
    same = await word_of(saves, "clerk", "Be good.")
    assert (same.word, same.passes) == ("same", True), same.line
    fails = await word_of(saves, "clerk", "Be brief.")
    assert (fails.word, fails.passes, fails.where) == ("fails", False, "lead"), fails.line
    assert fails.what.startswith("expected: answer.contains: 'three lamps, seen' is not in")
    bought = await word_of(saves, "clerk", "Sell.")
    assert (bought.word, bought.passes, bought.where) == ("other tool calls", None, "clerk"), bought.line
    assert bought.what == 'would call shelf__find {"what": "chairs"}, which was never recorded'
    twice = await word_of(saves, "clerk", "Look twice.")
    assert (twice.word, twice.where) == ("other tool calls", "clerk"), twice.line
    assert twice.what == 'would call shelf__find {"what": "lamps"}, which was recorded less often'
    busy = await word_of(saves, "clerk", "Break.")
    assert (busy.word, busy.passes) == ("not decided", None), busy.line
    assert "too many lamps" in busy.what
    refused = await word_of(saves, "clerk", "Refuse.")
    assert refused.word == "fails", refused.line
    assert "no such lamps" in refused.what
    expect(saves.root, {"answer": {"contains": "lamps"}})
    guessed = await word_of(saves, "lead", "Guess.")
    assert (guessed.word, guessed.passes, guessed.where) == ("other tool calls", True, "lead"), guessed.line
    assert guessed.what.startswith("no longer calls ")
    assert executed(saves.root) == []


@pytest.mark.slow
async def test_an_agent_in_a_process_of_its_own_is_asked_too(root: Path) -> None:
    content = yaml.safe_load((root / "agents.yaml").read_text())
    content["agents"]["clerk"]["isolation"] = "process"
    content["verdict"] = {"live": "always"}
    (root / "agents.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    expect(root, {"answer": {"contains": "lamps"}})
    async with gated(root, database="memory") as saves:
        calls = model_record(saves.fleet).calls
        told(saves, "clerk", "Be brief.")
        verdict = await asked(saves)
        (run,) = verdict.runs
        assert (run.word, run.passes, run.where) == ("other words", True, "lead"), run.line
        assert verdict.asked is not None
        assert (verdict.asked.count, verdict.asked.text) == (3, "3 model calls, $0")
        assert model_record(saves.fleet).calls - calls == 3
        bought = await word_of(saves, "clerk", "Sell.")
        assert (bought.word, bought.where) == ("other tool calls", "clerk"), bought.line
        assert bought.what == 'would call shelf__find {"what": "chairs"}, which was never recorded'
        assert executed(saves.root) == []


SCORERS = """
import time


def brief(recording):
    return len(recording.first.answer) < 300


def seen(recording):
    calls = [step.step.name for run in recording.runs for step in run.steps if step.step.kind == "tool"]
    assert "shelf__find" in calls
    return "seen" in recording.first.answer or "it does not say that they were seen"


def endless(recording):
    time.sleep(600)
"""
JUDGE = """
from pydantic_evals.evaluators import LLMJudge

polite = LLMJudge(rubric="It is polite.", model="openai:gpt-5")
"""


@pytest.mark.slow
async def test_other_words_are_judged_by_the_scorers_of_the_test(saves: GatedSaves) -> None:
    (saves.root / "checks.py").write_text(SCORERS)
    wanted = {"answer": {"contains": "lamps"}}
    expect(saves.root, wanted, scorers=["checks:brief"])
    fine = await word_of(saves, "clerk", "Be brief.")
    assert (fine.word, fine.passes) == ("other words", True), fine.line
    expect(saves.root, wanted, scorers=["checks:brief", "checks:seen"])
    fails = await word_of(saves, "clerk", "Be brief. ")
    assert (fails.word, fails.passes, fails.where) == ("fails", False, "lead"), fails.line
    assert fails.what == "expected: checks:seen: it does not say that they were seen"
    expect(saves.root, wanted, scorers=["checks:endless"])
    # Nothing waits for what the scorer does on.
    saves.edit("agents.yaml", lambda content: content["verdict"].update(timeout=600))
    late = await word_of(saves, "clerk", "Be brief.")
    assert (late.word, late.what) == ("fails", "expected: checks:endless: it did not return within 10 s")
    (saves.root / "judges.py").write_text(JUDGE)
    expect(saves.root, wanted, scorers=["judges:polite", "checks:brief"])
    open_ = await word_of(saves, "clerk", "Be brief. ")
    assert (open_.word, open_.passes) == ("other words", None), open_.line
    assert open_.what.endswith(" (its scorer judges:polite asks a model, and is not run)")
    assert executed(saves.root) == []


@pytest.mark.slow
async def test_an_agent_two_below_is_asked_and_those_above_it_with_what_it_says(root: Path) -> None:
    shutil.copytree(root.with_name("as it was made") / "tests", root / "tests", dirs_exist_ok=True)
    only(root, "deep")
    async with gated(root) as saves:
        told(saves, "clerk", "Be brief.")
        (run,) = (await asked(saves)).runs
        assert run.estimate is not None
        assert run.asked is not None
        # Clerk twice, then lead and chief once each.
        assert (run.estimate.count, run.asked.count) == (4, 4)
        # The kept test expects the old words.
        assert (run.word, run.passes, run.agents) == ("fails", False, ("clerk",)), run.line
        assert run.what.startswith("expected: answer.contains")
        assert "Chief: All in all" in run.what
        assert executed(root) == []


@pytest.mark.slow
async def test_what_costs_more_than_it_may_is_not_asked(root: Path) -> None:
    settings(root, {"live": "always", "max_cost": 0.000001}, prices={"scripted": {"input": 1, "output": 1}})
    async with gated(root) as saves:
        calls = model_record(saves.fleet).calls
        told(saves, "clerk", "Be brief.")
        verdict = await asked(saves)
        (run,) = verdict.runs
        assert run.word == "not decided"
        assert run.what.startswith("it was not asked: it would cost about ")
        assert run.what.endswith(" of max_cost <$0.0001 is left")
        assert verdict.estimate is not None
        assert (verdict.estimate.count, verdict.estimate.unpriced) == (3, 0)
        assert (verdict.estimate.cost or 0) > 1_000
        assert model_record(saves.fleet).calls == calls


@pytest.mark.slow
async def test_models_are_asked_up_to_the_cost_that_is_allowed(root: Path) -> None:
    """One of the runs fits."""
    shutil.copytree(root.with_name("as it was made") / "tests", root / "tests", dirs_exist_ok=True)
    only(root, "lamps", "deep")
    settings(
        root,
        {"live": "always", "max_cost": 0.006, "concurrency": 1},
        prices={"scripted": {"input": 1, "output": 1}},
    )
    async with gated(root) as saves:
        told(saves, "clerk", "Be brief.")
        verdict = await asked(saves)
        words = {each.name: each for each in verdict.runs}
        assert verdict.asked is not None
        assert verdict.asked.count in (3, 4)
        assert 0 < (verdict.asked.cost or 0) <= 6_000_000
        late = [each for each in words.values() if each.word == "not decided"]
        assert late, verdict.counts
        assert "max_cost" in late[0].what


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_no_more_is_paid_than_is_allowed_whichever_process_asks(root: Path, isolation: str) -> None:
    """Four runs at once, of which some fit. What was paid is counted at the model."""
    tests = root / "tests" / "agents"
    for number in range(1, 4):
        shutil.copytree(tests / "lamps.recording", tests / f"lamps-{number}.recording")
        text = (tests / "lamps.yaml").read_text().replace("lamps.recording", f"lamps-{number}.recording")
        (tests / f"lamps-{number}.yaml").write_text(text)
    content = yaml.safe_load((root / "agents.yaml").read_text())
    for agent in ("lead", "clerk"):
        content["agents"][agent]["isolation"] = isolation
    (root / "agents.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    limits = {"live": "always", "concurrency": 4}
    settings(root, {**limits, "max_cost": 0.000001}, prices={"scripted": {"input": 1, "output": 0}})
    async with gated(root) as saves:
        record = model_record(saves.fleet)
        known = record.calls
        told(saves, "clerk", "Be brief.")
        refused = await asked(saves)
        assert refused.estimate is not None
        assert refused.estimate.cost
        assert (refused.counts, record.calls) == ({"not decided": 4}, known)
        most = refused.estimate.cost // 2
        settings(root, {**limits, "max_cost": most / 1e9})
        await until(lambda: saves.fleet.project.verdict.max_cost == most / 1e9)
        before = len(saves.verdicts())
        told(saves, "clerk", "Be brief. ")
        verdict = await asked(saves, before)
        paid = [_price(body) for body in record.requests[known:]]
        assert verdict.asked is not None
        assert (len(paid), sum(paid)) == (verdict.asked.count, verdict.asked.cost)
        assert 0 < sum(paid) <= most
        late = [each for each in verdict.runs if each.word == "not decided"]
        assert 0 < len(late) < 4
        assert all("max_cost" in each.what for each in late)
        assert executed(saves.root) == []


def _price(body: Any) -> int:
    """What a request costs, in nano-US-dollars, as the offline model counts its tokens."""
    return -(-read_conversation(body).characters // 4) * 1_000


@pytest.mark.slow
async def test_a_second_save_ends_the_questions_to_models(saves: GatedSaves) -> None:
    expect(saves.root, {"answer": {"contains": "lamps"}})
    record = model_record(saves.fleet)
    told(saves, "clerk", "Wait.")
    await until(lambda: record.active == 1)
    told(saves, "clerk", "Be brief.")
    verdict = await asked(saves)
    await until(lambda: record.active == 0)
    assert [each.live for each in saves.verdicts()] == ["asking", "asking", "asked"]
    assert [(each.word, each.passes) for each in verdict.runs] == [("other words", True)]


@pytest.mark.slow
async def test_what_is_not_answered_in_time_is_not_decided(root: Path) -> None:
    settings(root, {"live": "always", "timeout": 5})
    async with gated(root) as saves:
        told(saves, "clerk", "Wait.")
        (run,) = (await asked(saves)).runs
        assert (run.word, run.what) == ("not decided", "models did not answer within 5 s")
        await until(lambda: model_record(saves.fleet).active == 0)


@pytest.mark.slow
async def test_without_a_key_the_reason_names_the_file_and_the_variable(root: Path) -> None:
    async with gated(root) as saves:
        text = (root / "agents" / "clerk.py").read_text()
        saves.write(
            "agents/clerk.py", text.replace('skills=["skills"]', 'skills=["skills"], model="openai.gpt-4o"')
        )
        (run,) = (await asked(saves)).runs
        assert run.word == "not decided", run.line
        assert "OPENAI_API_KEY" in run.what


def ask_first(root: Path, gate: str = "warn") -> None:
    settings(root, {"live": "ask", "gate": gate})
    expect(root, {"answer": {"contains": "lamps"}})


@pytest.mark.slow
async def test_with_ask_nothing_is_asked_until_it_is_wanted(root: Path) -> None:
    ask_first(root)
    async with gated(root) as saves:
        with pytest.raises(Fault, match="there is no verdict yet"):
            saves.fleet.ask_models()
        calls = model_record(saves.fleet).calls
        told(saves, "clerk", "Be brief.")
        verdict = await saves.verdict()
        assert (verdict.live, verdict.counts) == ("can ask", {"other words": 1})
        assert "models can be asked (pallas verdict --live): 3 model calls, $0" in verdict_line(verdict)
        await saves.settled()
        assert model_record(saves.fleet).calls == calls
        assert saves.fleet.ask_models().live == "asking"
        (run,) = (await asked(saves)).runs
        assert (run.word, run.passes) == ("other words", True)
        with pytest.raises(Fault, match="they were asked already"):
            saves.fleet.ask_models()


@pytest.mark.slow
async def test_a_held_version_goes_live_once_its_test_passes(root: Path) -> None:
    ask_first(root, "hold")
    async with gated(root) as saves:
        told(saves, "clerk", "Be brief.")
        await saves.is_held("clerk")
        saves.fleet.ask_models()
        await saves.is_live("clerk", 1)
        assert saves.held() == ()
        assert [each.live for each in saves.verdicts()] == ["can ask", "asked"]


@pytest.mark.slow
async def test_with_always_a_version_goes_live_only_if_its_test_passes(root: Path) -> None:
    ask_first(root)
    settings(root, {"live": "always", "gate": "hold"})
    async with gated(root) as saves:
        told(saves, "clerk", "Be brief.")
        await saves.is_live("clerk", 1)
        told(saves, "clerk", "Sell.")
        await saves.is_held("clerk")
        held = await saves.outcome("clerk", (await saves.outcome("clerk")).seq)
        assert 'would call shelf__find {"what": "chairs"}' in held.error


@pytest.mark.slow
async def test_models_are_asked_from_a_terminal_and_over_http(root: Path) -> None:
    ask_first(root)
    with served(root, "--watch") as fleet:
        await fleet.says("] running")
        status, _, err = await command("verdict", "-p", str(root), "--live")
        assert (status, "there is no verdict yet" in err) == (2, True), err
        text = (root / "agents" / "clerk.py").read_text()
        (root / "agents" / "clerk.py").write_text(text.replace(CLERK, f"{CLERK} Be brief."))
        await fleet.says("models can be asked (pallas verdict --live): 3 model calls, $0")
        status, out, err = await command("verdict", "-p", str(root), "--live", "--json")
        assert status == 1, err
        assert "asking models: 3 model calls, $0" in err
        said = json.loads(out)
        assert (said["live"], said["asked"]["count"], said["runs"][0]["passes"]) == ("asked", 3, True)
        (root / "agents" / "clerk.py").write_text(text.replace(CLERK, f"{CLERK} Be good."))
        await until(lambda: sum("models can be asked" in line for line in (*fleet.out, *fleet.err)) == 2)
        port = yaml.safe_load((root / "agents.yaml").read_text())["registry_port"]
        token = next(each.token for each in find_tokens(port))
        url, headers = (
            f"http://127.0.0.1:{port}/api/v1/fleet/verdict/live",
            {"authorization": f"Bearer {token}"},
        )
        async with httpx2.AsyncClient(headers=headers, timeout=60) as api:
            answer = await api.post(url)
            assert (answer.status_code, answer.json()) == (200, {"said": "asking models: 3 model calls, $0"})
        await fleet.says("1 same; asked 2 model calls, $0")
    assert executed(root) == []


@pytest.mark.slow
async def test_without_a_fleet_the_kept_tests_are_judged_and_models_asked(root: Path) -> None:
    ask_first(root)
    text = (root / "agents" / "clerk.py").read_text()
    (root / "agents" / "clerk.py").write_text(text.replace(CLERK, f"{CLERK} Be brief."))
    status, out, err = await command("verdict", "-p", str(root), "--live")
    # All agents count as changed: keeper is asked if it does not ask the same.
    assert (status, "asking models: 4 model calls, $0" in err) == (1, True), err
    assert "other words, its test passes" in out
    assert executed(root) == []
    settings(root, {"live": "never"})
    status, _, err = await command("verdict", "-p", str(root), "--live")
    assert status == 2
    assert "live: ask" in err


@pytest.mark.slow
async def test_an_intended_change_is_accepted_by_one_command(root: Path, made: Path) -> None:
    ask_first(root)
    for test in ("lamps", "deep"):
        shutil.copy(made / "tests" / "agents" / f"{test}.yaml", root / "tests" / "agents")
    clerk, lamps = root / "agents" / "clerk.py", root / "tests" / "agents" / "lamps.yaml"
    text = clerk.read_text()
    clerk.write_text(text.replace(CLERK, f"{CLERK} Be brief."))
    status, out, err = await command("verdict", "lamps", "-p", str(root))
    assert (status, "--accept" in err) == (2, True), err
    status, out, err = await command("verdict", "--accept", "lamps", "-p", str(root))
    assert (status, "asking models: " in err) == (0, True), err
    assert out.startswith("tests/agents/lamps.yaml: accepted (")
    assert "3 lamps" in yaml.safe_load(lamps.read_text())["expect"]["answer"]["contains"][0]
    status, out, _ = await command("verdict", "--json", "-p", str(root))
    words = {each["name"]: each["word"] for each in json.loads(out)["runs"]}
    assert (words["lamps"], words["deep"]) == ("same", "other words")
    status, _, err = await command("test", "lamps", "-p", str(root))
    assert status == 0, err
    status, out, err = await command("verdict", "--accept", "lamps", "-p", str(root))
    assert (status, out) == (0, "nothing to accept: no test differs from its recording\n"), err
    expect(root, {"answer": {"contains": "3 lamps"}})  # as an author loosens it
    clerk.write_text(text)
    before = {path: path.read_bytes() for path in (root / "tests").rglob("*") if path.is_file()}
    status, _, err = await command("verdict", "--accept", "lamps", "-p", str(root))
    assert status == 1
    assert "lamps is not accepted: it expects something else: answer.contains: " in err
    clerk.write_text(text.replace(CLERK, f"{CLERK} Sell."))
    status, _, err = await command("verdict", "--accept", "-p", str(root))
    assert status == 1
    assert "lamps is not accepted: other tool calls: " in err
    assert "`pallas test lamps --live`" in err
    assert {path: path.read_bytes() for path in before} == before
    assert executed(root) == []
