"""The tests of the sample project: nothing of them goes differently before anything is changed."""

from pathlib import Path

import pytest
from support.projects import copy_sample
from support.surfaces import command

from pallas.config import load_project
from pallas.fleet.reload.verdict_judge import JudgeRequest
from pallas.verdict.warm_judge import WarmJudge

pytestmark = pytest.mark.slow


async def test_each_test_is_the_same_whichever_agent_is_saved(tmp_path: Path) -> None:
    root = copy_sample(tmp_path)
    project, judge = load_project(root), WarmJudge()
    judged = set()
    try:
        # A typed handler is answered from the recording; a model still sees it among its tools.
        for agent in ("concierge", "catalogue", "research", "vision"):
            leading = await judge.tests_leading_to(project, {agent})
            names = tuple(each.name for each in leading)
            request = JudgeRequest(root=root, affected=frozenset({agent}), tests=names)
            async for verdict in judge.verdicts(request):
                assert verdict.word == "same", (agent, verdict.name, verdict.why)
                judged.add(verdict.name)
    finally:
        await judge.close()
    assert judged == {path.stem for path in (root / "tests" / "agents").glob("*.yaml")}


async def test_each_recording_is_the_same_when_it_is_replayed(tmp_path: Path) -> None:
    # One of them is of a run that says something before it calls its tools: that is no part of the answer.
    root = copy_sample(tmp_path)
    recordings = sorted((root / "tests" / "agents").glob("*.recording"))
    assert len(recordings) == 5
    for recording in recordings:
        status, out, err = await command("replay", str(recording), "-p", str(root))
        assert (status, err) == (0, ""), (recording.name, out)
