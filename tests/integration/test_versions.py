"""A new version of an agent beside the old one: what it is made of, what is different, and the way back."""

import asyncio
import os
import sys
import threading
from pathlib import Path
from time import time
from typing import Any

import pytest
import yaml
from support.live import ECHO, MODERN_FIRST, agent_module, ask, client, control, running, write_project
from support.processes import below
from support.project_modules import module_at
from support.waiting import until

from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.model import AgentState, Notice, Reloaded

ERA = pytest.mark.parametrize("era", MODERN_FIRST)


def saying(text: str, servers: tuple[str, ...] = (), head: str = "") -> str:
    """An agent with this instruction."""
    return head + agent_module("one", servers).replace("You are one.", text)


def code(root: Path, text: str, name: str = "one") -> None:
    (root / "agents" / f"{name}.py").write_text(text)


async def written(root: Path) -> Path:
    """The project once it is sure that its files were written before a version is made of them."""
    await until(lambda: time() > 0.05 + max(path.stat().st_ctime for path in root.rglob("*")))
    return root


async def exchange(fleet: Fleet, *files: str, **more: Any) -> Reloaded:
    """Have the first agent made anew, of the files as they are."""
    agent = fleet.agents[0]
    project = load_project(agent.project.root, {**os.environ})
    return await agent.swap(project, project.agents[agent.name], files=files, **more)


def instruction(fleet: Fleet) -> str:
    executor = fleet.agents[0].executor
    return executor.info.instruction if executor is not None else ""


def shown(fleet: Fleet) -> tuple[int, int]:
    """The version that answers, and the one that a rollback goes to."""
    agent = fleet.snapshot().agents[0]
    return agent.version, agent.previous


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def reloads(fleet: Fleet) -> list[Reloaded]:
    return [event for event in fleet.hub.since(0).events if isinstance(event, Reloaded)]


SHARED = {
    "agents/shared.py": "from agents.deep import words\nTEXT = words.TEXT\n",
    "agents/deep/__init__.py": "",
    "agents/deep/words.py": "TEXT = 'You share.'\n",
    "agents/late.py": "X = 1\n",
    "agents/other.py": "",
    "words/one.md": "You are told by a file. {{file:words/more.md}}",
    "words/more.md": "And more.",
}
READER = """
from pathlib import Path
from fast_agent import FastAgent
from agents.shared import TEXT

fast = FastAgent("one")

def tool() -> str:
    from agents import late
    return str(late.X)

@fast.agent(name="one", instruction=Path("words/one.md"))
async def main() -> None: ...
"""


async def test_an_agent_knows_the_files_it_was_made_of_those_shared_with_others_too(tmp_path: Path) -> None:
    two = "from agents.shared import TEXT\n" + agent_module("two")
    card = "---\nname: three\ntype: agent\n---\nYou are {{file:words/more.md}}\n"
    root = write_project(
        tmp_path,
        {"one": READER, "two": two, "three": None},
        keys={"three": {"module": None, "card": "cards/three.md"}},
        files={**SHARED, "cards/three.md": card},
    )
    async with running(root) as fleet:
        one, two_, three = (
            {str(path.relative_to(root)) for path in agent.files if path.exists()} for agent in fleet.agents
        )
        shared = {"agents/__init__.py", "agents/shared.py", "agents/deep/__init__.py", "agents/deep/words.py"}
        assert one == shared | {"agents/one.py", "agents/late.py", "words/one.md", "words/more.md"}
        assert two_ == shared | {"agents/two.py"}
        assert three == {"cards/three.md", "words/more.md"}
        # What was loaded anew names the same files.
        code(root, READER + "\n# more\n")
        outcome = await exchange(fleet, "agents/one.py")
        assert outcome.outcome == "live"
        again = {str(path.relative_to(root)) for path in fleet.agents[0].files if path.exists()}
        assert again == one


@pytest.mark.slow
async def test_a_module_that_a_tool_imports_late_is_the_one_that_was_saved(tmp_path: Path) -> None:
    source = """
def number() -> str:
    \"\"\"Which.\"\"\"
    from agents import late
    return f"late {late.X}"
"""
    source = agent_module("one").replace("\n\n@fast", f"\n{source}\n\n@fast")
    source = source.replace("servers=[]", "servers=[], function_tools=[number]")
    files = {"agents/late.py": "X = 1\n"}
    async with (
        running(write_project(tmp_path, {"one": source, "two": None}, files=files)) as fleet,
        client(fleet, "one") as caller,
    ):
        assert "late 1" in await ask(caller, "***CALL_TOOL number {}")
        before = module_at(tmp_path, "agents.late")
        assert (await exchange(fleet, force=True)).outcome == "live"
        assert "late 1" in await ask(caller, "***CALL_TOOL number {}")
        assert module_at(tmp_path, "agents.late") is before
        (tmp_path / "agents/late.py").write_text("X = 2\n")
        assert (await exchange(fleet, "agents/late.py")).outcome == "live"
        assert "late 2" in await ask(caller, "***CALL_TOOL number {}")


async def test_a_file_that_would_mend_a_failed_agent_is_one_of_its_files(tmp_path: Path) -> None:
    root = write_project(
        tmp_path,
        {"one": "from agents import broken\n", "two": "from agents.nowhere import X\n", "three": None},
        files={"agents/broken.py": "X = 1 / 0\n"},
    )
    async with running(await written(root)) as fleet:
        one, two, three = fleet.agents
        assert (one.state, two.state) == (AgentState.ERROR, AgentState.ERROR)
        assert {root / "agents/one.py", root / "agents/broken.py"} <= one.files
        assert {root / "agents/two.py", root / "agents/nowhere.py"} <= two.files
        # The same for one that goes on with the version before.
        code(root, "import agents.broken\n", "three")
        outcome = await three.swap(three.project, three.config, files=("agents/three.py",))
        assert (outcome.outcome, outcome.place) == ("failed", "agents/broken.py:1")
        assert {root / "agents/three.py", root / "agents/broken.py"} <= three.files
        code(root, agent_module("three"), "three")
        outcome = await three.swap(three.project, three.config, files=("agents/three.py",))
        assert outcome.outcome == "unchanged"
        assert root / "agents/broken.py" not in three.files


@ERA
async def test_a_new_version_tells_its_number_and_what_is_different(tmp_path: Path, era: str) -> None:
    root = write_project(
        tmp_path,
        {"one": saying("First.", ("echo",)), "two": None},
        config=ECHO,
    )
    async with running(root) as fleet, client(fleet, "one", era=era) as caller:
        assert shown(fleet) == (1, 0)
        topology = yaml.safe_load((root / "agents.yaml").read_text())
        port = topology["agents"]["two"]["port"]
        config = yaml.safe_load((root / "fastagent.config.yaml").read_text())
        config["mcp"]["servers"]["two"] = {
            "url": f"http://127.0.0.1:{port}/mcp",
            "auth": {"oauth": False},
            "headers": {"X-Api-Key": "sk-very-secret-0123456789"},
        }
        (root / "fastagent.config.yaml").write_text(yaml.safe_dump(config))
        topology["agents"]["one"] |= {"description": "Other words", "max_iterations": 5}
        (root / "agents.yaml").write_text(yaml.safe_dump(topology, sort_keys=False))
        source = saying("Second.", ("two",)).replace(
            'fast = FastAgent("one")',
            'fast = FastAgent("one")\n\n\ndef add(a: int) -> int:\n    """Add one."""\n    return a + 1\n',
        )
        code(root, source.replace("servers=['two']", "servers=['two'], function_tools=[add]"))
        outcome = await exchange(fleet, "agents/one.py", "agents.yaml")
        assert (outcome.outcome, outcome.version, shown(fleet)) == ("live", 2, (2, 1))
        assert reloads(fleet)[-1].changes == outcome.changes
        assert outcome.seconds > 0
        told = {(each.part, each.kind, each.name) for each in outcome.changes if each.part != "file"}
        assert {
            ("instruction", "changed", ""),
            ("servers", "added", "two"),
            ("servers", "removed", "echo"),
            ("tools", "added", "two/send_message"),
            ("tools", "added", "two/get_health"),
            ("tools", "added", "add"),
            ("tools", "removed", "echo/echo"),
            ("config", "changed", "description"),
            ("config", "changed", "max_iterations"),
        } <= told
        diff = next(each.diff for each in outcome.changes if each.part == "instruction")
        assert diff.splitlines() == ["@@ -1 +1 @@", "-First.", "+Second."]
        iterations = next(each for each in outcome.changes if each.name == "max_iterations")
        assert (iterations.before, iterations.after) == ("12", "5")
        assert "sk-very-secret" not in repr(outcome)
        assert await ask(caller, "hello") == "hello"


async def test_tools_of_a_downstream_that_changed_are_told_by_the_lines_that_differ(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": agent_module("one", ("echo",))}, config=ECHO)
    async with running(root) as fleet:
        server = root / "echo_server.py"
        text = server.read_text().replace("Say it again.", "Say it once more.")
        server.write_text(text.replace("def echo(text: str)", "def echo(text: str, times: int = 1)"))
        outcome = await exchange(fleet, "echo_server.py", force=True)
        (tool,) = [each for each in outcome.changes if each.part == "tools"]
        assert (tool.kind, tool.name) == ("changed", "echo/echo")
        assert "-Say it again." in tool.diff
        assert "+Say it once more." in tool.diff
        assert '+    "times": {' in tool.diff


async def test_what_makes_no_difference_outside_is_told_as_a_file(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": None})
    async with running(root) as fleet:
        code(root, agent_module("one") + "\nX = 1\n")
        outcome = await exchange(fleet, "agents/one.py")
        (change,) = outcome.changes
        assert (change.part, change.kind, change.name) == ("file", "changed", "agents/one.py")
        assert "+X = 1" in change.diff.splitlines()


async def test_a_save_that_changes_nothing_makes_no_version(tmp_path: Path) -> None:
    root = await written(write_project(tmp_path, {"one": None}))
    async with running(root) as fleet:
        before = fleet.agents[0].executor
        text = (root / "agents/one.py").read_text()
        (root / "agents/one.py").write_text(text)
        outcome = await exchange(fleet, "agents/one.py")
        assert (outcome.outcome, outcome.version, outcome.changes) == ("unchanged", 1, ())
        assert fleet.agents[0].executor is before
        # By hand it is made anew all the same, and is the same version.
        await control(fleet, "one", "reload")
        assert fleet.agents[0].executor is not before
        assert shown(fleet) == (1, 0)
        code(root, saying("Another."))
        assert (await exchange(fleet, "agents/one.py")).outcome == "live"
        assert shown(fleet) == (2, 1)


@pytest.mark.slow
@ERA
async def test_a_rollback_goes_back_and_another_one_forward_again(tmp_path: Path, era: str) -> None:
    root = write_project(tmp_path, {"one": saying("First.", ("echo",))}, config=ECHO)
    async with running(root) as fleet, client(fleet, "one", era=era) as caller:
        await ask(caller, "a", conversation_id="c")
        first = fleet.agents[0].executor
        # Those of a test before may be about to end.
        (child,) = await until(lambda: len(found := below(os.getpid(), "echo_server.py")) == 1 and found)
        topology = yaml.safe_load((root / "agents.yaml").read_text())
        topology["agents"]["one"]["description"] = "Other words"
        (root / "agents.yaml").write_text(yaml.safe_dump(topology, sort_keys=False))
        code(root, saying("Second.", ("echo",)))
        assert (await exchange(fleet, "agents/one.py")).version == 2
        second = fleet.agents[0].executor
        await until(lambda: not child.is_running())  # parked: what it ran is gone
        await control(fleet, "one", "rollback")
        assert fleet.agents[0].executor is first
        assert (shown(fleet), instruction(fleet)) == ((1, 2), "First.")
        assert fleet.snapshot().agents[0].description != "Other words"
        assert fleet.project.agents["one"].description != "Other words"
        last = reloads(fleet)[-1]
        assert (last.outcome, last.rolled_back, last.version) == ("live", True, 1)
        (described,) = [each for each in last.changes if each.name == "description"]
        assert (described.part, described.before) == ("config", "Other words")
        assert "echo:x" in await ask(caller, '***CALL_TOOL echo__echo {"text": "x"}')
        await control(fleet, "one", "rollback")
        assert fleet.agents[0].executor is second
        assert (shown(fleet), instruction(fleet)) == ((2, 1), "Second.")
        await ask(caller, "b", conversation_id="c")
        prompt = await caller.get_prompt("one_history", {"conversation_id": "c"})
        said = [each.content.text for each in prompt.messages if each.role == "user"]
        assert said == ["a", "b"]
        # An edit after going back leaves from there; the version in between is gone for good.
        await control(fleet, "one", "rollback")
        code(root, saying("Third.", ("echo",)))
        assert (await exchange(fleet, "agents/one.py")).version == 3
        assert shown(fleet) == (3, 1)
        await until(lambda: len(below(os.getpid(), "echo_server.py")) == 1)
        assert not [event.text for event in fleet.hub.since(0).events if isinstance(event, Notice)]


async def test_there_is_nothing_to_go_back_to_at_first(tmp_path: Path) -> None:
    async with running(write_project(tmp_path, {"one": None})) as fleet:
        await control(fleet, "one", "rollback")
        (text,) = [event.text for event in fleet.hub.since(0).events if isinstance(event, Notice)]
        assert text == "one: rollback failed: there is no earlier version to go back to"
        assert fleet.agents[0].state is AgentState.READY


async def test_a_version_with_runs_in_flight_is_gone_back_to_as_it_is(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": agent_module("one", ("echo",))}, config=ECHO)
    async with running(root) as fleet, client(fleet, "one") as caller:
        first = fleet.agents[0].executor
        call = asyncio.create_task(
            caller.call_tool("send_message", {"message": '***CALL_TOOL echo__slow {"text": "x"}'})
        )
        await until(lambda: fleet.snapshot().agents[0].runs_active == 1)
        code(root, saying("Second.", ("echo",)))
        assert (await exchange(fleet, "agents/one.py")).outcome == "live"
        assert fleet.agents[0].predecessors == 1
        await control(fleet, "one", "rollback")
        assert fleet.agents[0].executor is first
        assert fleet.snapshot().agents[0].runs_active == 1
        await until(lambda: fleet.agents[0].predecessors == 0)
        assert "echo:x" in await ask(caller, '***CALL_TOOL echo__echo {"text": "x"}')
        call.cancel()
        await asyncio.wait({call})


async def test_a_rollback_repairs_an_agent_that_was_restarted_with_broken_code(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": saying("Good.")})
    async with running(root) as fleet, client(fleet, "one") as caller:
        code(root, "import nowhere_at_all\n")
        await control(fleet, "one", "restart")
        assert fleet.agents[0].state is AgentState.ERROR
        await control(fleet, "one", "rollback")
        assert fleet.agents[0].state is AgentState.READY
        assert (instruction(fleet), fleet.snapshot().agents[0].error) == ("Good.", "")
        assert await ask(caller, "hello") == "hello"


BROKEN = {
    "syntax": ("def f(:\n", 1, "SyntaxError"),
    "import": ("\nimport nowhere_at_all\n", 2, "ModuleNotFoundError"),
    "exit": ("import sys\nsys.exit(3)\n", 2, "exit(3)"),
    "interrupt": ("raise KeyboardInterrupt\n", 1, "KeyboardInterrupt"),
    "cancelled": ("import asyncio\nraise asyncio.CancelledError\n", 2, "CancelledError"),
    "recursion": ("def f():\n    f()\n\nf()\n", 2, "RecursionError"),
    "late": (agent_module("one") + "\nraise ValueError('no')\n", 10, "ValueError: no"),
    "surroundings": (
        "import logging, os, sys\nos.chdir('/')\nsys.path.insert(0, '/nowhere')\n"
        "os.environ['PALLAS_X'] = '1'\nlogging.disable(logging.CRITICAL)\nsys.stdout = None\n1 / 0\n",
        7,
        "ZeroDivisionError",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_whatever_a_module_does_the_version_before_goes_on_and_the_place_is_told(
    tmp_path: Path, kind: str
) -> None:
    text, line, error = BROKEN[kind]
    root = write_project(tmp_path, {"one": saying("Good."), "two": None})
    async with running(root) as fleet, client(fleet, "one") as caller:
        before = (Path.cwd(), list(sys.path), module_at(root, "agents.one"), sys.stdout, dict(os.environ))
        code(root, text)
        outcome = await exchange(fleet, "agents/one.py")
        assert (outcome.outcome, outcome.version) == ("failed", 1)
        assert outcome.place == f"agents/one.py:{line}"
        assert error in outcome.error
        assert error in outcome.story
        assert [(each.part, each.name) for each in outcome.changes] == [("file", "agents/one.py")]
        assert f"+{text.splitlines()[-1]}" in outcome.changes[0].diff
        after = (Path.cwd(), list(sys.path), module_at(root, "agents.one"), sys.stdout, dict(os.environ))
        assert after == before
        assert fleet.agents[0].state is AgentState.READY
        assert instruction(fleet) == "Good."
        assert await ask(caller, "still") == "still"
        code(root, saying("Mended."))
        assert (await exchange(fleet, "agents/one.py")).version == 2


async def test_a_module_that_takes_its_time_holds_up_nobody(tmp_path: Path) -> None:
    slow = "import time\nfrom pathlib import Path\nwhile not Path('go').exists():\n    time.sleep(0.01)\n"
    root = write_project(tmp_path, {"one": None, "two": None})
    async with running(root) as fleet, client(fleet, "one") as caller, client(fleet, "two") as other:
        code(root, saying("Slow.", head=slow))
        reload = asyncio.create_task(exchange(fleet, "agents/one.py"))
        await until(lambda: "import one" in threads())
        assert await ask(caller, "meanwhile") == "meanwhile"
        assert await ask(other, "meanwhile") == "meanwhile"
        assert not reload.done()
        (root / "go").touch()
        assert (await reload).outcome == "live"
        assert instruction(fleet) == "Slow."


@pytest.mark.slow
async def test_a_module_that_never_ends_is_given_up_and_the_next_one_is_not_held_up(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": None})
    topology = yaml.safe_load((root / "agents.yaml").read_text())

    def within(seconds: int) -> None:
        topology["agents"]["one"]["start_timeout"] = seconds
        (root / "agents.yaml").write_text(yaml.safe_dump(topology, sort_keys=False))

    async with running(root) as fleet:
        within(2)  # its first start has the time that it needs
        code(root, "\nwhile True:\n    pass\n")
        outcome = await exchange(fleet, "agents/one.py")
        assert outcome.outcome == "failed"
        assert outcome.place in ("agents/one.py:2", "agents/one.py:3")
        assert "not ready within 2 s" in outcome.error
        await until(lambda: "import one" not in threads())
        within(60)
        code(root, saying("Good."))
        assert (await exchange(fleet, "agents/one.py")).outcome == "live"


async def test_threads_that_a_module_starts_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head = (
        "import threading\nSTOP = threading.Event()\n"
        "threading.Thread(target=STOP.wait, name='busy bee', daemon=True).start()\n"
    )
    root = write_project(tmp_path, {"one": None})
    async with running(root) as fleet:
        code(root, saying("Busy.", head=head))
        assert (await exchange(fleet, "agents/one.py")).outcome == "live"
        assert any("busy bee" in record.getMessage() for record in caplog.records)
        module_at(root, "agents.one").STOP.set()


async def test_a_downstream_that_is_away_is_no_difference_in_its_tools(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": agent_module("one", ("echo",))}, config=ECHO)
    async with running(root) as fleet:
        (root / "echo_server.py").rename(root / "gone.py")
        for process in below(os.getpid(), "echo_server.py"):
            process.kill()
        executor = fleet.agents[0].executor
        assert executor is not None
        await until(lambda: not any(each.is_open for each in executor.connections()))
        code(root, saying("Second.", ("echo",)))
        outcome = await exchange(fleet, "agents/one.py")
        assert outcome.outcome == "live"
        assert {each.part for each in outcome.changes} == {"instruction"}
