"""`pallas route`, typed in a project whose fleet runs and in one whose does not."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.live import IN_A_FILE, module_fleet
from support.ports import free_ports

from pallas.cli.app import run
from pallas.fleet.fleet import Fleet
from pallas.model import Event, RunStarted

ANSWERS = """
async def coder(request):
    return "coder"


async def chooser(request):
    return "writer" if "and choose writer" in request.text else "\\x1b[2Jwhoever"
"""
AGENTS = {
    "coder": {
        "kind": "handler",
        "handler": "answers:coder",
        "capabilities": ["coding"],
        "examples": ["Fix the failing test"],
    },
    "writer": {
        "kind": "handler",
        "handler": "answers:coder",
        "capabilities": ["writing"],
        "examples": ["Write a blog post"],
    },
    "chooser": {"kind": "handler", "handler": "answers:chooser"},
    "front": {"kind": "router", "agents": ["coder", "writer"], "by": "model", "ask": "chooser"},
    "safe": {"kind": "router", "agents": ["coder"], "fallback": "writer"},
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


def project(root: Path) -> Path:
    (port,) = free_ports(1)
    (root / "answers.py").write_text(ANSWERS)
    (root / "agents.yaml").write_text(
        yaml.safe_dump({"name": "routes", "port": port, "agents": AGENTS}, sort_keys=False)
    )
    return root


@pytest.fixture(autouse=True)
def nothing_of_the_user(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PALLAS_URL", "PALLAS_TOKEN", "PALLAS_CONTROL_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    yield


@module_fleet(database=IN_A_FILE, ready=True)
def fleet(folder: Path) -> Path:
    return project(folder)


class Typed:
    """Types `pallas route` in a project's folder."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._root, self._capsys = root, capsys

    async def __call__(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        status = await asyncio.to_thread(run, ["route", "-p", str(self._root), *words])
        out, err = self._capsys.readouterr()
        return status, out, err


async def test_without_a_fleet_what_is_declared_decides_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    route = Typed(project(tmp_path), capsys)
    status, out, err = await route("please fix this failing test")
    assert status == 0
    assert out.splitlines()[0] == "coder  (by examples)"
    assert out.splitlines()[1].startswith("  like its example “Fix the failing test” (")
    assert out.splitlines()[2:] == ["others:", "  writer   0.00", "  chooser  0.00"]
    assert (
        err
        == "# no fleet of this project runs: the state of its agents is unknown, and only their files count\n"
    )

    status, out, _ = await route("whatever", "--capability", "writing", "--json")
    body = json.loads(out)
    assert (status, body["agent"], body["by"], body["live"]) == (0, "writer", "capability", False)

    status, out, err = await route("bake a cake")
    assert (status, out) == (1, "")
    assert err.startswith("no agent fits “bake a cake”; the candidates were coder, writer, chooser\n")
    status, out, _ = await route("bake a cake", "--json")
    assert (status, json.loads(out)["agent"]) == (1, None)

    status, out, err = await route("fix the test", "--router", "front")
    assert out.startswith("coder  (by examples)")
    assert "# front asks chooser, which needs --by model; without it the examples decide\n" in err
    status, out, _ = await route("bake a cake", "--router", "safe")
    assert out.startswith("writer  (by fallback)")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["x", "--router", "nobody"], "nobody is not in agents.yaml; there are front, safe"),
        (["x", "--router", "coder"], "coder is not a router; there are front, safe"),
        (["x", "--by", "luck"], "--by luck: allowed: capability, examples, model"),
        (["x", "--by", "model"], "--by model needs --ask AGENT, or a --router that asks one"),
        ([" "], "the question is empty"),
    ],
)
async def test_what_cannot_be_done_is_told_with_what_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    status, out, err = await Typed(project(tmp_path), capsys)(*words)
    assert (status, out, err) == (2, "", f"pallas route: {line}\n")


async def test_with_a_fleet_agents_count_as_they_are_and_none_is_run(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    route = Typed(fleet.project.root, capsys)
    heard: list[Event] = []
    unlisten = fleet.hub.listen(heard.append)
    status, out, err = await route("fix this test", "--json")
    body = json.loads(out)
    assert (status, body["agent"], body["live"], body["leftOut"], err) == (0, "coder", True, [], "")
    assert [each["status"] for each in body["others"]] == ["ready", "ready"]
    coder = next(agent for agent in fleet.agents if agent.name == "coder")
    await coder.stop("away")
    try:
        status, out, err = await route("fix this test")
        assert (status, out) == (1, "")
        assert "the candidates were coder (it is stopped, or not served), writer, chooser" in err
    finally:
        await coder.start()
    unlisten()
    assert not [event for event in heard if isinstance(event, RunStarted)]


async def test_only_by_model_an_agent_is_run_the_one_that_is_asked(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    route = Typed(fleet.project.root, capsys)
    heard: list[Event] = []
    unlisten = fleet.hub.listen(heard.append)
    status, out, err = await route("look here and choose writer", "--router", "front", "--by", "model")
    assert (status, out.splitlines()[0]) == (0, "writer  (by model)"), err
    status, out, err = await route("fix the test", "--router", "front", "--by", "model")
    unlisten()
    assert out.startswith("coder  (by examples)\n  the model that was asked answered “")
    assert "\x1b" not in out
    assert {event.agent for event in heard if isinstance(event, RunStarted)} == {"chooser"}
