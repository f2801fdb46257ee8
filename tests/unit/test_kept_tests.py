"""Runs kept as tests: what is expected of a run as it was, and what is never replaced."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pallas.agent_tests.agent_test_file import find_tests
from pallas.agent_tests.expectations import failures
from pallas.agent_tests.kept_test import NameTaken, is_taken, keep, name_problem
from pallas.config import load_project
from pallas.model import RecordedRun, Recording, Step, StepDetail
from pallas.recordings.recording_folder import read


def recorded(answer: str, **more: Any) -> Recording:
    return Recording("test", (RecordedRun("r1", "clerk", "How many?", answer, **more),))


@pytest.mark.parametrize("end", [" of three", " and more" * 60], ids=["short", "long"])
def test_a_run_that_failed_must_fail_the_same_way(tmp_path: Path, end: str) -> None:
    fault = f"the model is gone{end}"
    path = keep(recorded("", status="error", fault=fault), tmp_path, "gone")
    expected = yaml.safe_load(path.read_text())["expect"]["fails"]
    assert expected.startswith("the model is gone of" if end == " of three" else "the model is gone and more")
    assert expected in fault


def test_the_recording_of_another_test_is_not_replaced(tmp_path: Path) -> None:
    path = keep(recorded("seven"), tmp_path, "lamps")
    path.unlink()  # its recording is there still, and another test may name it
    assert is_taken(tmp_path, "lamps")
    with pytest.raises(NameTaken, match="there is a test lamps already"):
        keep(recorded("eight"), tmp_path, "lamps")
    assert read(path.with_suffix(".recording")).first.answer == "seven"
    keep(recorded("eight"), tmp_path, "lamps", replaces=True)
    assert read(path.with_suffix(".recording")).first.answer == "eight"


@pytest.mark.parametrize(
    ("name", "said"), [("x" * 151, "has 151 characters"), ("../x", "is not a name"), ("a/b-1", "")]
)
def test_a_name_is_one_of_a_file(name: str, said: str) -> None:
    assert (said in name_problem(name)) if said else name_problem(name) == ""


ITEMS = [
    {"name": "lamp", "price": 7.5, "tags": []},
    {"name": "rug", "price": 12, "tags": ["red"], "sold": True, "by": None},
]
STOCK = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "price": {"type": "number"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "sold": {"type": "boolean"},
                    "by": {"type": "null"},
                },
                "required": ["name", "price", "tags"],
            },
        },
    },
    "required": ["count", "items"],
}


def expected_of(recording: Recording, root: Path) -> dict[str, Any]:
    """What a test expects that was kept of a run, which the run meets."""
    path = keep(recording, root, "kept")
    (root / "agents.yaml").write_text("name: p\nagents:\n  clerk: {module: clerk, port: 24201}\n")
    (root / "clerk.py").write_text("")
    (test,) = find_tests(load_project(root))
    assert failures(recording, test.turns[0].expect) == []
    found: dict[str, Any] = yaml.safe_load(path.read_text())["expect"]
    return found


def test_an_answer_of_json_is_kept_as_its_schema(tmp_path: Path) -> None:
    expected = expected_of(recorded(json.dumps({"count": 2, "items": ITEMS})), tmp_path)
    assert expected["answer"] == {"schema": STOCK}
    assert expected_of_answer("[]", tmp_path / "none") == {"schema": {"type": "array"}}
    mixed = {"type": "array", "items": {"type": ["integer", "string", "object"]}}
    assert expected_of_answer('[1, "a", {}]', tmp_path / "mixed") == {"schema": mixed}
    many = json.dumps({f"order-{number}": number for number in range(51)})
    assert expected_of_answer(many, tmp_path / "many") == {"schema": {"type": "object"}}
    assert expected_of_answer("42", tmp_path / "text") == {"contains": ["42"]}


def expected_of_answer(answer: str, root: Path) -> Any:
    root.mkdir()
    return expected_of(recorded(answer), root)["answer"]


def test_each_call_is_kept_with_its_arguments_and_the_time_with_room(tmp_path: Path) -> None:
    def step(number: int, name: str, arguments: dict[str, Any]) -> StepDetail:
        request = json.dumps({"name": name, "arguments": arguments})
        return StepDetail(Step("r1", number, "tool", name, float(number), "done"), request)

    steps = (
        step(1, "shelf__find", {"what": "lamps"}),
        step(2, "shelf__look", {"at": 1}),
        step(3, "shelf__find", {"what": "rugs", "most": 3}),
        step(4, "shelf__shut", {}),
    )
    expected = expected_of(recorded("done", steps=steps, seconds=4.1), tmp_path)
    assert expected["calls"]["arguments"] == {
        "shelf__find": [{"$.what": "lamps"}, {"$.what": "rugs", "$.most": 3}],
        "shelf__look": {"$.at": 1},
    }
    assert expected["most"] == {"steps": 4, "seconds": 13}
