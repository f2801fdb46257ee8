"""The sample project's own tests of its agents."""

from pathlib import Path

import pytest
from support.projects import copy_sample
from support.pytest_process import pytest_in
from support.surfaces import command
from support.tutorial import blocks_of

MORE = """
from dataclasses import replace

import pytest


def test_a_conversation_goes_on(pallas_ask):
    first = pallas_ask("research", "hello")
    second = pallas_ask("research", "hello again", after=first)
    assert [each.text for each in second.history][0] == "hello"
    elsewhere = replace(second, runs=(replace(second.first, id="nowhere"),))
    with pytest.raises(ValueError, match="run nowhere was not asked in this fleet"):
        pallas_ask("research", "x", after=elsewhere)


def test_a_picture_is_sent(pallas_ask):
    (picture,) = pallas_ask("vision", "What is this?", images=["pictures/logo.png"]).first.images
    assert picture.mime_type == "image/png"
    with pytest.raises(ValueError, match="is not a picture"):
        pallas_ask("vision", "What is this?", images=["agents.yaml"])


def test_a_recording_that_is_not_there_is_named(pallas_replay):
    with pytest.raises(Exception, match="nothing.recording"):
        pallas_replay("tests/agents/nothing.recording")
"""


async def run_tests(root: Path) -> list[str]:
    _, out, err = await command("test", "-p", str(root))
    assert err == ""
    return out.splitlines()


@pytest.mark.slow
async def test_the_sample_project_has_five_tests_that_need_no_model(tmp_path: Path) -> None:
    root = copy_sample(tmp_path)
    lines = await run_tests(root)
    assert lines[-1].startswith("5 passed in ")
    assert {line.split()[0] for line in lines[:5]} == {"passed"}
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
    assert sum("papers" in line for line in lines[: lines.index("")]) == 2


@pytest.mark.slow
async def test_the_tests_in_python_of_the_docs_pass_in_the_sample_project(tmp_path: Path) -> None:
    root = copy_sample(tmp_path)
    pages = Path(__file__).parents[2] / "docs"
    (code,) = (
        block.text
        for block in blocks_of((pages / "agent-tests.md").read_text("utf-8"))
        if block.language == "python" and "pallas_replay" in block.text
    )
    (root / "tests" / "test_lamps.py").write_text(code)
    (root / "tests" / "test_more.py").write_text(MORE)
    status, out = await pytest_in(tmp_path, str(root))
    assert status == 0, out
    assert "6 passed" in out
    path = root / "agents" / "research.py"
    path.write_text(path.read_text().replace("documents", "papers"))
    status, out = await pytest_in(root, "tests/test_lamps.py", "-k", "recorded")
    assert (status, "1 failed" in out) == (1, True), out
    (tmp_path / "test_alone.py").write_text("def test_it(pallas_ask): ...\n")
    status, out = await pytest_in(tmp_path, "test_alone.py")
    assert status == 1
    assert f"there is no agents.yaml in a folder above {tmp_path}" in out
