"""`pallas keep` makes a test of a run, and `pallas test` runs it against the fleet as it is."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from support.live import ERAS
from support.recorded import PICTURE
from support.recorded_runs import asked
from support.recorded_runs import fleet as fleet
from support.served import Served
from support.surfaces import command

from pallas.model.money import nano_usd, usd_text

ASKED = "How many lamps?"


async def pallas(fleet: Served, *words: str) -> tuple[int, str, str]:
    return await command(*words, "-p", str(fleet.root))


def folder_of(fleet: Served) -> Path:
    return fleet.root / "tests" / "agents"


def write(fleet: Served, name: str, **document: Any) -> None:
    path = folder_of(fleet) / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"agent": "clerk", **document}, sort_keys=False))


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_a_run_is_kept_as_a_test_that_passes(fleet: Served, era: str) -> None:
    image = {"data": PICTURE, "mime_type": "image/png"}
    run = await asked(fleet, ASKED, era=era, conversation_id=f"kept {era}", images=[image])
    name = f"lamps-{era}"
    status, out, err = await pallas(fleet, "keep", run, name)
    assert (status, err) == (0, "")
    assert out == f"{folder_of(fleet)}/{name}.yaml: `pallas test {name}` runs it\n"
    kept = yaml.safe_load((folder_of(fleet) / f"{name}.yaml").read_text())
    assert kept["agent"] == "lead"
    assert kept["ask"] == ASKED
    assert sorted(kept["expect"]["calls"]["any_order"]) == [
        "clerk__send_message", "shelf__find", "shelf__look",
    ]  # fmt: skip
    assert kept["expect"]["calls"]["arguments"]["shelf__find"] == {"$.what": "lamps"}
    assert kept["expect"]["most"]["seconds"] >= 10
    assert sorted(kept["expect"]["agents"]) == ["clerk", "keeper"]
    assert kept["expect"]["most"]["steps"] > 5
    (picture,) = kept["images"]
    assert (folder_of(fleet) / picture).read_bytes().startswith(b"\x89PNG")
    status, out, err = await pallas(fleet, "test", name, "--live")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("about ")
    assert lines[1].startswith(f"passed   {name}  ")
    assert lines[2].startswith("1 passed in ")
    status, _, err = await pallas(fleet, "keep", run, name)
    assert status == 1
    assert err.startswith(f"pallas keep: there is a test {name} already: choose another name, or add --force")
    assert (await pallas(fleet, "keep", run, name, "--force"))[0] == 0
    assert (await pallas(fleet, "keep", run, "../out"))[0] == 2


@pytest.mark.slow
async def test_what_is_not_as_expected_is_said_and_reported(fleet: Served, tmp_path: Path) -> None:
    write(
        fleet,
        "not_so",
        ask="find lamps",
        expect={"answer": {"contains": "nine"}, "calls": {"never": "shelf__look"}},
    )
    report = tmp_path / "reports" / "junit.xml"
    status, out, _ = await pallas(fleet, "test", "not_so", "--live", "--junit", str(report))
    assert status == 1
    assert "FAILED   not_so" in out
    assert "         answer.contains: 'nine' is not in 'three lamps, seen'" in out
    assert "         calls.never: shelf__look was called" in out
    suite = ElementTree.parse(report).getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "1", "0")
    (case,) = suite
    assert (case.get("classname"), case.get("name")) == ("clerk", "not_so")
    assert case[0].tag == "failure"
    assert "nine" in str(case[0].text)


@pytest.mark.slow
async def test_a_test_that_is_repeated_has_a_rate_with_its_interval(fleet: Served) -> None:
    write(fleet, "often", ask="find lamps", expect={"answer": {"contains": "three"}})
    status, out, _ = await pallas(fleet, "test", "often", "--live", "--repeat", "8", "-o", "json")
    assert status == 0
    (found,) = json.loads(out)["tests"]
    assert (found["passed"], found["runs"], found["passRate"]) == (8, 8, 1.0)
    assert found["interval"] == pytest.approx([0.6756, 1.0], abs=1e-4)
    assert found["passN"] == 1.0
    assert len({trial["runIds"][0] for trial in found["trials"]}) == 8  # never from a cache
    status, out, _ = await pallas(fleet, "test", "often", "--live", "--repeat", "8")
    assert "8/8 = 100% (68% to 100%), pass^8 100%" in out


@pytest.mark.slow
async def test_turns_of_one_conversation_follow_each_other(fleet: Served) -> None:
    turns = [
        {"ask": "hello", "expect": {"answer": {"contains": "turn 1"}}},
        {"ask": "hello", "expect": {"answer": {"contains": "turn 2"}}},
    ]
    write(fleet, "talk", turns=turns)
    assert (await pallas(fleet, "test", "talk", "--live"))[0] == 0


async def test_a_scorer_of_the_project_judges_a_run(fleet: Served) -> None:
    (fleet.root / "checks.py").write_text(
        "def polite(recording):\n    return 'please' in recording.first.answer or 'it is not polite'\n"
        "async def short(recording):\n    return 1 / len(recording.first.answer)\n"
        "def broken(recording):\n    raise ValueError('no idea')\n"
        "def leaves(recording):\n    raise SystemExit(0)\n"
        "def empty(recording):\n    return float('nan')\n"
    )
    scorers = [f"checks:{name}" for name in ("polite", "short", "broken", "leaves", "empty")]
    scorers.append("nowhere:x")
    write(fleet, "judged", ask="find lamps", scorers=scorers)
    status, out, _ = await pallas(fleet, "test", "judged", "--live")
    assert status == 1
    assert "checks:polite: it is not polite" in out
    assert "checks:short: its score is 0.0588235; it must be 0.5 to 1" in out
    assert "checks:broken: it raised ValueError: no idea" in out
    assert "checks:leaves: it raised SystemExit: 0" in out
    assert "checks:empty: its score is nan; it must be 0.5 to 1" in out
    assert "nowhere:x: it raised ModuleNotFoundError: there is no nowhere.py in the project's folder" in out


@pytest.mark.slow
@pytest.mark.parametrize("what", [500, "garbage"])
async def test_faults_of_a_tool_are_injected_in_a_fleet_of_its_own(fleet: Served, what: Any) -> None:
    # The model looks at the lamps only once they are found.
    expect = {"calls": {"never": ["shelf__look"]}}
    fault = {"to": "shelf__find", "what": what, "at": 1}
    write(fleet, "away", ask="find lamps", expect=expect, faults=[fault])
    status, out, _ = await pallas(fleet, "test", "away", "--live", "--own")
    assert (status, "passed   away" in out) == (0, True), out
    write(fleet, "away", ask="find lamps", expect=expect)
    assert (await pallas(fleet, "test", "away", "--live", "--own"))[0] == 1


@pytest.mark.slow
async def test_no_further_test_begins_when_the_tokens_are_used(fleet: Served) -> None:
    write(fleet, "dear", ask="find lamps")
    status, out, _ = await pallas(
        fleet,
        "test",
        "dear",
        "--live",
        "--repeat",
        "5",
        "--concurrency",
        "1",
        "--max-tokens",
        "1",
        "-o",
        "json",
    )
    assert status == 0
    (found,) = json.loads(out)["tests"]
    assert [trial["verdict"] for trial in found["trials"]] == ["passed", *["skipped"] * 4]


@pytest.mark.slow
async def test_no_further_test_begins_when_the_money_is_spent(fleet: Served) -> None:
    write(fleet, "dearer", ask="find lamps", expect={"most": {"usd": 1}})
    words = ("test", "dearer", "--live", "--repeat", "3", "--concurrency", "1")
    status, out, _ = await pallas(fleet, *words, "--max-cost", "0.000001", "-o", "json")
    assert status == 0
    (found,) = json.loads(out)["tests"]
    assert [trial["verdict"] for trial in found["trials"]] == ["passed", "skipped", "skipped"]
    assert found["cost"] == found["trials"][0]["cost"]
    status, out, _ = await pallas(fleet, *words)
    assert status == 0
    paid = 3 * (nano_usd(found["cost"]) or 0)
    assert out.splitlines()[-1].endswith(f", {usd_text(paid)}")
    write(fleet, "dearer", ask="find lamps", expect={"most": {"usd": 0.000001}})
    status, out, _ = await pallas(fleet, *words)
    assert status == 1
    assert "most.usd: it cost $0.00" in out


async def test_a_run_that_fails_is_a_failure_unless_it_must(fleet: Served) -> None:
    write(fleet, "fails", ask="be broken", expect={"answer": {"contains": "x"}})
    write(fleet, "must_fail", ask="be broken", expect={"fails": ""})
    status, out, _ = await pallas(fleet, "test", "fail", "--live")
    assert status == 1
    assert "fails: the run failed: " in out
    assert "passed   must_fail" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("test", "nothing_of_that_name"), "pallas test: no tests of that name in tests/agents"),
        (("test", "--repeat", "3"), "pallas test: --repeat, --max-tokens and --max-cost are for"),
        (("test", "--max-cost", "1"), "pallas test: --repeat, --max-tokens and --max-cost are for --live"),
        (("test", "--live", "--max-cost", "-1"), "pallas test: --max-cost -1: write US dollars"),
        (("test", "-o", "xml"), "pallas test: --output xml: allowed: text, json"),
        (("test", "--against", "HEAD", "--junit", "x"), "pallas test: --against writes no JUnit report"),
    ],
)
async def test_wrong_use_is_said(fleet: Served, words: tuple[str, ...], said: str) -> None:
    status, out, err = await pallas(fleet, *words)
    assert (status, out) == (2, "")
    assert err.startswith(said)
