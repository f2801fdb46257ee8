"""Modules as people write them: other names, other files, and what cannot work is told what to write."""

from pathlib import Path

import pytest
from support.live import ask, client, running, write_project

from pallas.cli.app import run
from pallas.model import AgentState

MADE = """
from fast_agent import FastAgent


def build() -> FastAgent:
    made = FastAgent("made")

    @made.agent("one", instruction="x")
    async def main() -> None: ...

    return made
"""
OTHER_NAME = """
from fast_agent import FastAgent

application = FastAgent("mine")
same = application


@application.agent("one", instruction="x")
async def main() -> None: ...
"""
TWO = """
from fast_agent import FastAgent

left = FastAgent("left")
right = FastAgent("right")


@left.agent("one", instruction="x")
async def main() -> None: ...


@right.agent("two", instruction="x")
async def other() -> None: ...
"""
OLD = """
import asyncio
from mcp_agent.core.fastagent import FastAgent

fast = FastAgent("x")
"""
MAIN = """
from fast_agent import FastAgent


async def main() -> None:
    fast = FastAgent("x")

    @fast.agent("one", instruction="x")
    async def agent() -> None: ...
"""
GUARDED = """
from fast_agent import FastAgent

if __name__ == "__main__":
    fast = FastAgent("x")
"""
EITHER = """
try:
    from fast_agent import FastAgent
except ImportError:
    from mcp_agent.core.fastagent import FastAgent

fast = FastAgent("x")


@fast.agent("one", instruction="x")
async def main() -> None: ...
"""


def project(root: Path, modules: dict[str, str], names: dict[str, str] | None = None) -> Path:
    """``names`` are entries by module, where they have another name."""
    names = names or {}
    entries = {names.get(module, module): module for module in modules}
    keys = {entry: {"module": module} for entry, module in entries.items()}
    files = {f"{module}.py": text for module, text in modules.items()}
    return write_project(root, dict.fromkeys(entries), keys=keys, files=files)


async def test_a_fastagent_is_found_by_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    modules = {
        "named": OTHER_NAME,
        "called": f"{MADE}\n\nwhatever = build()\n",
        "my-agent": OTHER_NAME,
        "2nd_try": OTHER_NAME,
        "pair": TWO,
        "either": EITHER,
    }
    root = project(tmp_path, modules, {"pair": "two"})
    assert run(["check", str(root), "--offline"]) == 0
    assert capsys.readouterr().err == ""
    async with running(root) as fleet:
        for agent in fleet.agents:
            assert agent.state is AgentState.READY, agent.story
            assert agent.snapshot().serves == ("two" if agent.name == "two" else "one")
        async with client(fleet, "my-agent") as caller:
            assert await ask(caller, "hello") == "hello"


CANNOT = {
    "made": (MADE, "made.py:6", "makes its FastAgent in the function build, which an import does not run"),
    "inside": (MAIN, "inside.py:6", "makes its FastAgent in the function main, which an import does not run"),
    "guarded": (GUARDED, "guarded.py:5", "makes its FastAgent under `if __name__`, which an import does not"),
    "old": (OLD, "old.py:3", "mcp_agent is the old name of its package: write `from fast_agent import"),
}


async def test_what_cannot_work_is_told_what_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, {name: text for name, (text, _, _) in CANNOT.items()})
    assert run(["check", str(root), "--offline"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(CANNOT), lines
    async with running(root) as fleet:
        for name, (_, place, words) in CANNOT.items():
            agent = next(each for each in fleet.agents if each.name == name)
            for text in (agent.story, next(line for line in lines if line.startswith(f"{place}: "))):
                assert place in text
                assert words in text
                assert "write `f" in text


@pytest.mark.slow
def test_the_import_says_it_in_the_same_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    modules = {name: text for name, (text, _, _) in CANNOT.items()}
    root = project(tmp_path, {**modules, "pair": TWO})
    assert run(["check", str(root), "--offline", "--import"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert sum("does not import" in line for line in lines) == 1  # the old package
    for _, place, words in CANNOT.values():
        assert [words in line for line in lines if line.startswith(f"{place}: ")] == [True], lines
    several = (
        "pair.py: agents.pair.module: has several FastAgents (left, right), and none is called fast; name"
    )
    assert any(line.startswith(several) for line in lines), lines


NEEDS = """
import {module}
from fast_agent import FastAgent

fast = FastAgent("x")


@fast.agent("one", instruction="x")
async def main() -> None: ...
"""
STACKED = """
from fast_agent import FastAgent

fast = FastAgent("x")


@fast.agent("upper", instruction="x")
@fast.agent("lower", instruction="x")
async def main() -> None: ...
"""
PLACES = {
    "lacks": (
        "nowhere_7f3a",
        "install it where Pallas is: `pip install nowhere-7f3a` or `uv add nowhere-7f3a`",
    ),
    "renamed": ("docx", "install it where Pallas is: `pip install python-docx` or `uv add python-docx`"),
    "beside": (
        "aids",
        "tools/aids.py is not in the project's folder: import it as tools.aids, or add tools to sys.path",
    ),
    "packaged": (
        "own_7f3a",
        "src/own_7f3a is not in the project's folder: install the project itself where Pallas is, `pip ",
    ),
    "newer": ("fast_agent.core.nothing", "has no such module"),
}


async def test_a_module_that_is_not_there_is_named_with_what_to_do_and_others_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    modules = {name: NEEDS.format(module=module) for name, (module, _) in PLACES.items()}
    root = project(tmp_path, {**modules, "whole": OTHER_NAME})
    (root / "tools").mkdir()
    (root / "tools" / "aids.py").write_text("")
    (root / "src" / "own_7f3a").mkdir(parents=True)
    (root / "src" / "own_7f3a" / "__init__.py").write_text("")
    (root / "pyproject.toml").write_text("[project]\nname = 'own'\n")
    assert run(["check", str(root), "--offline"]) == 0
    warned = capsys.readouterr().err
    for name, (module, fix) in PLACES.items():
        if name != "newer":
            assert (
                f"{name}.py:2: warning: agents.{name}.module: imports {module}, which is not installed; {fix}"
                in (warned)
            )
    async with running(root) as fleet:
        for agent in fleet.agents:
            if agent.name == "whole":
                assert agent.state is AgentState.READY
                continue
            assert (
                f"{agent.name}.py:2: ModuleNotFoundError: No module named '{PLACES[agent.name][0]}'; "
                in agent.story
            )
            assert PLACES[agent.name][1] in agent.story


async def test_a_module_without_an_agent_is_told_of_the_cards_of_the_project(tmp_path: Path) -> None:
    root = project(tmp_path, {"bare": "from fast_agent import FastAgent\n\nfast = FastAgent('x')\n"})
    async with running(root) as fleet:
        assert fleet.agents[0].story.endswith("defines no agent; decorate a function with @fast.agent(...)")
    (root / ".fast-agent" / "agent-cards").mkdir(parents=True)
    (root / ".fast-agent" / "agent-cards" / "one.md").write_text("---\nname: one\n---\nx\n")
    async with running(root) as fleet:
        assert "or serve the cards: `card: .fast-agent/agent-cards`" in fleet.agents[0].story


def test_imports_that_may_fail_are_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tried = f"try:\n    import nowhere_7f3a\nexcept ImportError:\n    nowhere_7f3a = None\n{OTHER_NAME}"
    later = f"{OTHER_NAME}\n\ndef late() -> None:\n    import nowhere_7f3a\n"
    found = f"import sys\n\nsys.path.append('more')\nimport nowhere_7f3a\n{OTHER_NAME}"
    root = project(tmp_path, {"tried": tried, "later": later, "found": found})
    assert run(["check", str(root), "--offline"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        (
            "from mcp_agent import FastAgent, RequestParams",
            "`from fast_agent import FastAgent, RequestParams`",
        ),
        ("from mcp_agent.core.prompt import Prompt", "`from fast_agent import Prompt`"),
        (
            "from mcp_agent.mcp.prompt_message_multipart import PromptMessageMultipart",
            "`from fast_agent.types import PromptMessageExtended`",
        ),
        ("from mcp_agent.core.agent_app import AgentApp", "`from fast_agent.core.agent_app import AgentApp`"),
        ("import mcp_agent.core.fastagent as old", "`import fast_agent.core.fastagent`"),
        (
            "from mcp_agent.workflows.gone import Gone",
            "fast_agent, which has no fast_agent.workflows.gone: look there for",
        ),
    ],
)
def test_each_import_of_the_old_package_is_told_where_that_is_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, advice: str
) -> None:
    root = project(tmp_path, {"old": f"{line}\n{OTHER_NAME}"})
    assert run(["check", str(root), "--offline"]) == 2
    assert advice in capsys.readouterr().err


async def test_of_decorators_above_each_other_the_lowest_is_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, {"stacked": STACKED})
    run(["check", str(root), "--offline"])
    assert "its first, lower, is served" in capsys.readouterr().err
    async with running(root) as fleet:
        assert fleet.agents[0].snapshot().serves == "lower"
