"""Broken projects, and every line that is said of each: a text that changes is changed here too.

Each file of ``config_corpus`` is a list of cases: the project's files, the environment, and what is said,
in the order in which it is said. A line that begins ``warning:`` stops nothing.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.config_folder import Folder

CORPUS = Path(__file__).parent / "config_corpus"


def cases() -> list[Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [
        pytest.param(case, id=f"{path.stem}: {case['case']}")
        for path in sorted(CORPUS.glob("*.yaml"))
        for case in yaml.load(path.read_text("utf-8"), Loader=loader)
    ]


@pytest.mark.parametrize("case", cases())
def test_a_broken_project_says_all_of_this(tmp_path: Path, case: dict[str, Any]) -> None:
    folder = Folder(tmp_path, case.get("environ"))
    for name, text in case["files"].items():
        folder.write(name, text)
    said = [f"{'warning: ' if found.level == 'warning' else ''}{found}" for found in folder.found()]
    assert said == case["says"].splitlines()


def test_a_value_of_the_wrong_kind_is_always_told_with_what_to_write() -> None:
    said = [line for case in cases() for line in case.values[0]["says"].splitlines()]
    needed = [line for line in said if " is needed" in line]
    assert len(needed) > 100
    assert [line for line in needed if not line.partition(" is needed; ")[2]] == []
