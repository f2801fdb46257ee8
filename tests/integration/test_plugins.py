"""Plugins: modules of a project and of installed packages that add to Pallas."""

import json
import os
import pty
import re
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from support import pallas_process
from support.chatting import desk, model
from support.live import agent_module, ask_agent, run_agent, running, write_project
from support.typed import typed_project
from support.waiting import until

from pallas import hookspecs
from pallas.fleet.fleet import Fleet
from pallas.model import Fault, Notice

pytestmark = pytest.mark.usefixtures("forked_children")

DOCS = Path(__file__).parents[2] / "docs" / "handlers.md"
INSTALLED = """
import typer
from pallas.commands import CommandOutcome, SlashCommand
from pallas.config import Mistake
from pallas.hookspecs import hookimpl

app = typer.Typer()

@app.command()
def shout(word: str) -> None:
    "Say a word louder."
    print(word.upper())

@app.command()
def check() -> None:
    "Never reached: Pallas has this command."
    print("mine")

@hookimpl
def command_line():
    return app

async def loud(host, rest):
    if rest == "boom":
        raise ValueError("too loud")
    return CommandOutcome(rest.upper())

@hookimpl
def chat_commands():
    return [
        SlashCommand("loud", "loud text", "Says it louder.", loud),
        SlashCommand("help", "help", "Mine.", loud),
    ]

@hookimpl
def project_checks(project):
    for name, agent in project.agents.items():
        if len(name) < 4:
            yield Mistake(agent.where, f"agents.{name}", "is a short name", "write a longer one")
"""
BROKEN = """
from pallas.hookspecs import hookimpl

@hookimpl
def project_checks(project):
    raise RuntimeError("no rules\\x1b[2J here")
"""
UNFIT = """
from pallas.hookspecs import hookimpl

@hookimpl
def project_check(project):
    return []
"""
HEARS = """
import json
from pathlib import Path

from pallas.hookspecs import hookimpl
from pallas.model import RunFinished

@hookimpl
def fleet_event(event):
    if isinstance(event, RunFinished):
        with Path("heard.jsonl").open("a") as file:
            file.write(json.dumps([event.agent, event.outcome]) + "\\n")
"""
RAISES = """
from pallas.hookspecs import hookimpl

@hookimpl
def fleet_event():
    raise RuntimeError("deaf")
"""


def installed(folder: Path, **plugins: str) -> dict[str, str]:
    """The environment of commands that find packages, installed in a folder, with these plugins."""
    for name, text in plugins.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
        (info / "entry_points.txt").write_text(f"[pallas]\n{name} = {name}\n", "utf-8")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture
def pallas(tmp_path: Path) -> Callable[..., CompletedProcess[str]]:
    """`pallas` where three plugins are installed, two of which are broken."""
    folder = tmp_path / "site"
    folder.mkdir()
    environment = installed(folder, louder=INSTALLED, broken=BROKEN, unfit=UNFIT)

    def run(*arguments: str) -> CompletedProcess[str]:
        return pallas_process.run(
            *arguments, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    return run


def test_a_package_adds_commands(pallas: Callable[..., CompletedProcess[str]]) -> None:
    done = pallas("shout", "hello")
    assert (done.returncode, done.stdout) == (0, "HELLO\n")
    # A plugin that is broken is named, and costs only itself.
    assert "pallas: plugin unfit: cannot be loaded: PluginValidationError" in done.stderr
    shown = pallas("--help")
    assert shown.returncode == 0
    assert shown.stdout.rpartition("Plugins:")[2].split()[:5] == ["shout", "Say", "a", "word", "louder."]


def test_a_command_of_ours_asks_no_plugin(
    pallas: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    done = pallas("init", str(tmp_path / "p"))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_package_adds_checks(pallas: Callable[..., CompletedProcess[str]], tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"bot": None, "helper": None})
    found = json.loads(pallas("check", str(root), "--json", "--offline").stdout)
    assert not found["ok"]
    said = {(each["key"], each["level"], each["problem"]) for each in found["mistakes"]}
    assert ("agents.bot", "error", "is a short name") in said
    warned = " ".join(problem for key, level, problem in said if (key, level) == ("plugins", "warning"))
    assert "plugin broken: project_checks failed: RuntimeError: no rules" in warned
    assert "plugin unfit: cannot be loaded" in warned
    assert "\x1b" not in warned
    assert [name for name, *_ in said].count("agents.helper") == 0


def test_a_module_of_the_project_checks_it_when_its_code_may_be_imported(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"bot": None}, top={"plugins": ["house_rules"]})
    (root / "house_rules.py").write_text(INSTALLED, "utf-8")

    def problems(*options: str) -> list[str]:
        done = pallas_process.run(
            "check", str(root), "--json", "--offline", *options, capture_output=True, text=True, check=False
        )
        return [each["problem"] for each in json.loads(done.stdout)["mistakes"]]

    assert "is a short name" not in problems()
    assert "is a short name" in problems("--import")


def test_a_module_that_is_not_there_is_refused_with_its_line(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"bot": None}, top={"plugins": ["house_rule"]})
    (root / "house_rules.py").write_text(INSTALLED, "utf-8")
    done = pallas_process.run("check", str(root), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        "plugins: house_rule is not a module in the project's folder; did you mean house_rules" in done.stderr
    )


def test_a_package_adds_slash_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", installed(folder, louder=INSTALLED)["PYTHONPATH"])
    with model(tmp_path) as scripted:
        project = desk(tmp_path, scripted)
        with project.serving():
            keyboard, terminal = pty.openpty()
            chat = project.start("vision", stdin=terminal)
            os.write(keyboard, b"/loud hear me\n/loud boom\n/help help\n/help loud\n/quit\n")
            said = chat.communicate(timeout=60)[1].decode()
            os.close(keyboard)
            os.close(terminal)
    assert "HEAR ME" in said
    assert "plugin louder: ValueError: too loud" in said
    assert "/help [command]" in said  # ours stays
    assert "Says it louder." in said


async def test_a_module_of_the_project_hears_events(tmp_path: Path) -> None:
    root = write_project(
        tmp_path / "p", {"bot": agent_module("bot")}, top={"plugins": ["ears"], "bind": "127.0.0.1"}
    )
    (root / "ears.py").write_text(HEARS, "utf-8")
    async with running(root) as fleet:
        await ask_agent(fleet, "bot", "hello")
    # What was left when the fleet ended was heard, too.
    assert [json.loads(line) for line in (root / "heard.jsonl").read_text().splitlines()] == [["bot", "ok"]]


async def test_a_module_that_fails_costs_only_itself(tmp_path: Path) -> None:
    root = write_project(
        tmp_path / "p",
        {"bot": agent_module("bot")},
        top={"plugins": ["ears", "deaf", "mute"], "bind": "127.0.0.1"},
    )
    for name, text in {"ears": HEARS, "deaf": RAISES, "mute": "import absent"}.items():
        (root / f"{name}.py").write_text(text, "utf-8")
    async with running(root) as fleet:
        await ask_agent(fleet, "bot", "hello")
        await until(lambda: len(told(fleet)) == 3)
        assert (root / "heard.jsonl").exists()
    assert told(fleet) == [
        "plugin mute: cannot be loaded: ModuleNotFoundError: No module named 'absent'",
        "plugin deaf: fleet_event failed: RuntimeError: deaf",
        "plugin deaf: fleet_event failed: RuntimeError: deaf; it receives no more events",
    ]


def examples() -> dict[str, str]:
    """The modules of docs/handlers.md by name."""
    blocks = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    return dict(blocks)


async def test_the_example_of_the_docs_does_what_they_say(tmp_path: Path) -> None:
    entries = {"bot": {"kind": "handler", "handler": "desk:answer"}}
    top = {"plugins": ["house_rules"], "bind": "127.0.0.1"}
    root = typed_project(tmp_path / "p", "async def answer(request):\n    raise ValueError", entries, top=top)
    (root / "house_rules.py").write_text(examples()["house_rules"], "utf-8")
    done = pallas_process.run(
        *("check", str(root), "--import", "--offline"), capture_output=True, text=True, check=False
    )
    assert re.search(
        r"agents.yaml:\d+: agents.bot.description: is missing; write what it is for", done.stderr
    )
    async with running(root) as fleet:
        with pytest.raises(Fault):
            await run_agent(fleet, "bot", "hello")
    assert (root / "failures.txt").read_text() == "{'bot': 1}\n"


def test_the_packages_example_of_the_docs_does_what_it_says(tmp_path: Path) -> None:
    environment = installed(tmp_path, shout_for_pallas=examples()["shout_for_pallas"])
    done = pallas_process.run(
        *("shout", "hello"), env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "HELLO\n"


def test_each_extension_point_is_in_the_docs() -> None:
    points = {
        name: tuple(signature(function).parameters)
        for name, function in vars(hookspecs).items()
        if hasattr(function, "pallas_spec")
    }
    assert set(points) == {"project_checks", "chat_commands", "command_line", "fleet_event"}
    for name, arguments in points.items():
        assert f"| `{name}({', '.join(arguments)})` |" in DOCS.read_text("utf-8")


def told(fleet: Fleet) -> list[str]:
    events = fleet.hub.since(0, 20_000).events
    return [each.text for each in events if isinstance(each, Notice) and each.text.startswith("plugin ")]
