"""The sample project's own tests of its agents."""

from pathlib import Path

import pytest
from support.projects import copy_sample
from support.surfaces import command


async def run_tests(root: Path) -> list[str]:
    _, out, err = await command("test", "-p", str(root))
    assert err == ""
    return out.splitlines()


@pytest.mark.slow
async def test_the_sample_project_has_five_tests_that_need_no_model(tmp_path: Path) -> None:
    root = copy_sample(tmp_path)
    *lines, last = await run_tests(root)
    assert last.startswith("5 passed in ")
    assert {line.split()[0] for line in lines} == {"passed"}
    # The README says so.
    path = root / "agents" / "research.py"
    text = path.read_text()
    assert "documents" in text
    path.write_text(text.replace("documents", "papers"))
    lines = await run_tests(root)
    assert lines[-1].startswith("3 passed, 2 failed in ")
    assert sorted(line.split()[1] for line in lines if line.startswith("FAILED")) == [
        "dimming",
        "invoice-bug",
    ]
    assert sum("papers" in line for line in lines) == 2
