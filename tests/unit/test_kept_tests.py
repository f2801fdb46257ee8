"""Runs kept as tests: what is expected of a run as it was, and what is never replaced."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pallas.agent_tests.kept_test import NameTaken, is_taken, keep, name_problem
from pallas.model import RecordedRun, Recording
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
    ("name", "said"), [("x" * 151, "has 151 characters"), ("../x", "is no name"), ("a/b-1", "")]
)
def test_a_name_is_one_of_a_file(name: str, said: str) -> None:
    assert (said in name_problem(name)) if said else name_problem(name) == ""
