"""The command line: what it offers, what it refuses, and what it does not import."""

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import pallas_process

from pallas import server
from pallas.cli import app

HEAVY = ("fast_agent", "fastmcp", "mcp", "textual", "starlette", "uvicorn")
COMMAND = Path(sys.executable).parent / "pallas"


def _run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return pallas_process.run(*arguments, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def test_the_command_and_the_module_are_the_same() -> None:
    # PR-4
    module = [sys.executable, "-m", "pallas.server"]
    command, other = (
        subprocess.run([*words, "--help"], capture_output=True, text=True, timeout=60, check=True)
        for words in ([COMMAND], module)
    )
    assert command.stdout == other.stdout
    assert "dev" in command.stdout


def test_the_version_is_told() -> None:
    from pallas import __version__

    assert _run("--version").stdout == f"pallas {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["dev", "--help"], ["check", "--help"], ["bridge", "--help"]]
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    source = (
        "import sys; from pallas.cli.app import run; status = run(sys.argv[1:]);"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules];"
        "print(heavy, file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"


@pytest.mark.slow
def test_what_asks_or_describes_a_fleet_and_the_start_of_one_import_none() -> None:
    # A container asks every ten seconds; a start listens to signals before it imports what takes long.
    source = (
        "import sys, pallas.cli.ready, pallas.cli.serve, pallas.cli.systemd;"
        f"print([name for name in (*{HEAVY!r}, 'pallas.fleet.fleet') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "disabled"),
    [
        (["check"], 1), (["check", "shop", "--json"], 1), (["check", "bearer"], 0), ([], 1), (["--serve"], 1),
        (["get"], 0), (["dev"], 1), (["dev", "--serve"], 0), (["dev", "missing"], 0),
    ],
)  # fmt: skip
def test_garbage_is_not_collected_while_files_are_checked_only_and_before_the_first_paint(
    arguments: list[str], disabled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr("pallas.cli.dev.dev", lambda options: calls.append(-1))
    monkeypatch.setattr("pallas.cli.serve.serve", lambda root: calls.append(-1))
    monkeypatch.setattr(sys, "argv", ["pallas", *arguments])
    monkeypatch.setattr(app, "run", lambda given: calls.append(-1))
    monkeypatch.setattr(gc, "disable", lambda: calls.append(1))
    monkeypatch.setattr(gc, "enable", lambda: calls.append(0))
    monkeypatch.setattr(gc, "freeze", lambda: None)
    with pytest.raises(SystemExit):
        server.main()
    assert calls[-1] == -1  # what comes before it decides
    assert calls[-2] == disabled


@pytest.mark.parametrize(("command", "enabled"), [("check", False), ("get", True)])
def test_garbage_is_collected_for_a_command_that_follows_an_option(
    command: str, enabled: bool, tmp_path: Path
) -> None:
    source = (
        "import gc, sys; from pallas import server\n"
        f"sys.argv[1:] = ['--project', '.', {command!r}]\n"
        "try: server.main()\n"
        "finally: print(gc.isenabled(), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert str(enabled) in done.stderr.splitlines()


@pytest.mark.parametrize(
    ("arguments", "parsed"), [([], False), (["."], False), (["missing"], True), ([".", "-p", "."], True)]
)
def test_the_workbench_is_opened_before_the_parser_and_the_models_of_files_are_imported(
    arguments: list[str], parsed: bool, tmp_path: Path
) -> None:
    source = (
        "import sys; import pallas_tui.launch as launch; from pallas import server\n"
        "slow = 'typer', 'pydantic', 'yaml', 'textual'\n"
        "launch.main = lambda root: print(root, [name for name in slow if name in sys.modules]) or 7\n"
        "sys.argv[1:1] = ['dev']; server.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip
    imported = ["typer"] if parsed else []
    assert (done.returncode, done.stdout) == (7, f"{(arguments or ['.'])[0]} {imported}\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "root"),
    [
        ([], {}, "."), (["--serve"], {}, "."), (["-p", "x"], {}, "x"), (["-p", "x", "--serve"], {}, "x"),
        (["--serve", "--project", "x"], {}, "x"), (["-p", "--serve"], {}, None),
        (["-p", "--serve", "x"], {}, None), (["--serve", "--watch"], {}, None), (["get", "agents"], {}, None),
        (["--version"], {}, None), ([], {"_PALLAS_COMPLETE": "complete_bash"}, None),
        ([], {"CREDENTIALS_DIRECTORY": "/x"}, None),
    ],
)  # fmt: skip
def test_a_project_is_served_without_the_parser_where_nothing_else_is_asked(
    arguments: list[str], environment: dict[str, str], root: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str | None] = []
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pallas.cli.serve.serve", lambda path: served.append(str(path)))
    monkeypatch.setattr(app, "run", lambda given: served.append(None))
    monkeypatch.setattr(sys, "argv", ["pallas", *arguments])
    for name in ("disable", "enable", "freeze"):
        monkeypatch.setattr(gc, name, lambda: None)
    with pytest.raises(SystemExit):
        server.main()
    assert served == [root]


@pytest.mark.parametrize("arguments", [["--nonsense"], ["nonsense"], ["init"]])
def test_wrong_use_is_status_2_and_no_traceback(arguments: list[str], tmp_path: Path) -> None:
    done = _run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()


def test_a_folder_without_a_project_says_how_to_make_one(tmp_path: Path) -> None:
    done = _run(cwd=tmp_path)
    assert done.returncode == 2
    assert "pallas init" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_check_takes_the_project_before_or_after_the_command(tmp_path: Path) -> None:
    # PR-1
    assert _run("init", str(tmp_path / "desk")).returncode == 0
    for arguments in (
        ["check", str(tmp_path / "desk")],
        ["--project", str(tmp_path / "desk"), "check"],
        ["check", "-p", str(tmp_path / "desk")],
    ):
        done = _run(*arguments)
        assert done.returncode == 0, done.stderr
        assert "1 agent;" in done.stdout


def test_every_command_that_needs_a_project_takes_it_as_p() -> None:
    from typer.main import get_command

    def commands(command: Any, words: str) -> Iterator[tuple[str, Any]]:
        for name, each in getattr(command, "commands", {}).items():
            yield from commands(each, f"{words} {name}".strip())
        if not hasattr(command, "commands"):
            yield words, command

    found = dict(commands(get_command(app.app), ""))
    without = {
        words for words, each in found.items() if not any("-p" in option.opts for option in each.params)
    }
    assert without == {"init", "schema", "token new", "token hash"}


def test_the_workbench_without_a_terminal_names_the_headless_twin(tmp_path: Path) -> None:
    assert _run("init", str(tmp_path / "desk")).returncode == 0
    done = _run("dev", str(tmp_path / "desk"))
    assert done.returncode == 2
    assert "--serve" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_runtime_imports_the_offline_model_when_a_project_asks_for_it_and_the_workbench_never() -> None:
    source = (
        "import sys, pallas.fleet.fleet, pallas.cli.check;"
        "print([name for name in sys.modules if name.startswith('pallas.scripted')]);"
        "import pallas.cli.app, pallas.cli.serve, pallas.fleet.threaded_fleet,"
        "pallas.surfaces.agent_mcp, pallas.executors.fastagent.fastagent_executor,"
        "pallas.scripted.scripted_server;"
        "print([name for name in sys.modules if name.split('.')[0] in ('textual', 'pallas_tui')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True
    )
    offline_model, workbench = done.stdout.splitlines()
    assert offline_model == "[]"
    assert workbench == "[]"
