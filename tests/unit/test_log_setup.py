"""Levels, handlers and the terminal: who says how much, and where."""

import asyncio
import inspect
import io
import json
import logging
import os
import re
import stat
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pallas.telemetry.log import close_logging, log_path, setup_logging
from pallas.telemetry.log.log_file import LogFileHandler
from pallas.telemetry.log.log_setup import PINNED

VARIABLES = (
    "PALLAS_LOG_FILE",
    "PALLAS_LOG_LEVEL",
    "PALLAS_ROOT_LOG_LEVEL",
    "PALLAS_LOG_STDERR",
    "XDG_STATE_HOME",
)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    close_logging()
    known = [
        logging.getLogger(),
        *(logging.getLogger(n) for n in (*PINNED, "pallas", "pallas_tui", "fast_agent")),
    ]
    before = [(each, each.level, each.propagate, list(each.handlers)) for each in known]
    yield
    close_logging()
    for each, level, propagate, handlers in before:
        each.setLevel(level)
        each.propagate, each.handlers = propagate, handlers


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pallas.log"


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _messages(path: Path) -> list[str]:
    return [record["message"] for record in _records(path)]


def test_the_file_is_in_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # PR-35
    monkeypatch.setenv("HOME", str(tmp_path))
    assert log_path() == tmp_path / ".local/state/pallas/pallas.log"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert log_path() == tmp_path / "state/pallas/pallas.log"
    monkeypatch.setenv("PALLAS_LOG_FILE", "~/other.log")
    assert log_path() == tmp_path / "other.log"


def test_the_variable_moves_the_file_also_when_it_is_set_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first = setup_logging()
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "b.log"))
    second = setup_logging()
    logging.getLogger("pallas.x").warning("here")
    assert (first, second) == (tmp_path / "pallas" / "pallas.log", tmp_path / "b.log")
    assert _messages(first) == []
    assert _messages(second) == ["here"]


@pytest.mark.parametrize(
    ("configured", "variable", "level"),
    [
        (None, None, logging.INFO),
        ("debug", None, logging.DEBUG),
        ("debug", "ERROR", logging.ERROR),
        ("WARN", None, logging.WARNING),
        (None, "debug", logging.DEBUG),
    ],
)
def test_the_variable_goes_before_the_configured_level(
    file: Path, monkeypatch: pytest.MonkeyPatch, configured: str | None, variable: str | None, level: int
) -> None:  # PR-35
    if variable:
        monkeypatch.setenv("PALLAS_LOG_LEVEL", variable)
    setup_logging(configured, path=file)
    assert logging.getLogger("pallas.fleet").getEffectiveLevel() == level
    assert logging.getLogger("pallas_tui.app").getEffectiveLevel() == level
    assert logging.getLogger().level == max(level, logging.INFO)


def test_an_unknown_level_is_told_once_and_info_is_used(file: Path) -> None:
    for _ in range(3):
        setup_logging("loud", path=file)
    assert _messages(file) == [
        "unknown log level 'loud'; using info. Use debug, info, warning, error or critical"
    ]


def test_chatty_libraries_stay_at_warning_even_when_the_root_is_debug(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # PR-34
    monkeypatch.setenv("PALLAS_ROOT_LOG_LEVEL", "DEBUG")
    setup_logging("debug", path=file)
    assert logging.getLogger().level == logging.DEBUG
    eleven = "openai openai._base_client anthropic anthropic._base_client sse_starlette sse_starlette.sse mcp"
    named = [*eleven.split(), "mcp.client", "mcp.server", "httpx", "httpcore", "httpx2", "fastmcp", "uvicorn"]
    for name in named:
        logging.getLogger(name).info("chatter of %s", name)
        logging.getLogger(name).warning("trouble of %s", name)
    logging.getLogger("some.library").debug("wanted")
    assert _messages(file) == [*(f"trouble of {name}" for name in named), "wanted"]


def test_the_agents_library_never_logs_whole_conversations(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PR-36: its debug records hold every prompt and what the tools returned
    monkeypatch.setenv("PALLAS_ROOT_LOG_LEVEL", "debug")
    setup_logging("debug", path=file)
    logging.getLogger("fast_agent").debug("OpenAI completion requested for: everything that was said")
    logging.getLogger("fast_agent").info("heard")
    logging.getLogger("some.library").debug("this too")
    assert _messages(file) == ["heard", "this too"]


def test_the_docs_name_every_library_that_is_pinned() -> None:  # PR-34
    docs = (Path(__file__).parents[2] / "docs" / "logging.md").read_text("utf-8")
    named = docs.partition("even when the root is at")[2].partition("`fast_agent` stays")[0]
    assert re.findall(r"`([a-z_0-9.]+)`", named) == list(PINNED)


def test_libraries_stay_at_info_while_ours_say_everything(file: Path) -> None:  # PR-34
    setup_logging("debug", path=file)
    logging.getLogger("some.library").debug("hidden")
    logging.getLogger("pallas.kernel").debug("shown")
    assert _messages(file) == ["shown"]


def test_each_handler_is_there_once_however_often_it_is_set_up(file: Path) -> None:  # PR-29
    for _ in range(5):
        assert setup_logging("info", path=file, stderr=True) == file
    assert sum(isinstance(handler, LogFileHandler) for handler in logging.getLogger().handlers) == 1
    logging.getLogger("pallas.x").info("once")
    assert _messages(file) == ["once"]


def test_a_later_call_keeps_what_an_earlier_one_asked_for(file: Path) -> None:
    setup_logging("debug", path=file)
    assert setup_logging() == file
    logging.getLogger("pallas.x").debug("still")
    assert _messages(file) == ["still"]


def test_a_record_of_installation_reaches_the_file(file: Path) -> None:  # PR-30
    setup_logging(path=file)
    logging.getLogger("pallas.executors.fastagent.seam").info("bearer forwarding installed")
    assert _messages(file) == ["bearer forwarding installed"]


@pytest.mark.parametrize("again", [False, True])
def test_fast_agent_is_heard_once_though_it_sets_up_its_logger_at_every_start(
    file: Path, again: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    setup_logging(path=file)
    from fast_agent import context
    from fast_agent.config import LoggerSettings, Settings

    configure_logger = inspect.unwrap(context.configure_logger)  # without our hook on it
    for kind in ("none", "console"):
        # Without a progress display, as an agent's: it would stay with the process and draw in other tests.
        settings = LoggerSettings(type=kind, level="warning", progress_display=False)
        asyncio.run(configure_logger(Settings(logger=settings)))
        assert not logging.getLogger("fast_agent").propagate
        if again:
            setup_logging(path=file)
        logging.getLogger("fast_agent").warning("from the agent (%s)", kind)
    assert _messages(file) == ["from the agent (none)", "from the agent (console)"]
    assert capfd.readouterr() == ("", "")


def test_fastmcp_does_not_draw_on_the_terminal(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from fastmcp.utilities.logging import configure_logging

    configure_logging()
    assert len(logging.getLogger("fastmcp").handlers) == 2
    setup_logging(path=file)
    try:
        raise ValueError("in a tool")
    except ValueError:
        logging.getLogger("fastmcp.server").exception("tool failed")
    assert capfd.readouterr() == ("", "")
    assert "ValueError: in a tool" in _records(file)[0]["exc"]


def test_handlers_that_listen_elsewhere_stay(file: Path, tmp_path: Path) -> None:
    listening, own = logging.StreamHandler(io.StringIO()), logging.FileHandler(tmp_path / "own.log")
    drawing = logging.StreamHandler(sys.__stdout__)
    logger = logging.getLogger("some.agent")
    logger.handlers = [listening, own, drawing]
    try:
        setup_logging(path=file)
        assert logger.handlers == [listening, own]
    finally:
        logger.handlers = []
        own.close()


def test_a_logger_cut_off_from_the_root_falls_back_to_the_file(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    setup_logging(path=file)
    lonely = logging.getLogger("a.lonely.library")
    lonely.propagate = False
    try:
        lonely.warning("heard")
    finally:
        lonely.propagate = True
    assert _messages(file) == ["heard"]
    assert capfd.readouterr() == ("", "")


def test_warnings_of_python_go_to_the_file(file: Path) -> None:
    setup_logging(path=file)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning("is deprecated", DeprecationWarning, "x.py", 3)
    assert "DeprecationWarning: is deprecated" in _messages(file)[0]


def test_a_folder_that_cannot_be_made_is_replaced_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "in the way").touch()
    wanted = tmp_path / "in the way" / "pallas.log"
    used = {setup_logging(path=wanted) for _ in range(3)}
    assert used == {tmp_path / "tmp" / f"pallas-{os.getuid()}" / "pallas.log"}
    (path,) = used
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    (message,) = _messages(path)
    assert message.startswith(f"cannot write the log to {wanted} (")
    assert "PALLAS_LOG_FILE" in message


def test_a_temporary_folder_of_someone_else_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"pallas-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in the way").touch()
    used = setup_logging(path=tmp_path / "in the way" / "pallas.log")
    assert used.parent != tmp_path / f"pallas-{os.getuid()}"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def _run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


CHATTER = """
import logging, sys
from pallas.telemetry.log import setup_logging
import fastmcp
setup_logging("debug")
for name in ("pallas.x", "openai._base_client", "mcp.server", "fastmcp.server", "uvicorn.error", "other"):
    for level in (10, 20, 30, 40):
        logging.getLogger(name).log(level, "from %s", name)
logging.getLogger("bad.call").error("%d", "x")
"""


@pytest.mark.slow
def test_nothing_reaches_the_terminal_unless_asked_for(file: Path) -> None:  # PR-33, PR-34
    done = _run(CHATTER, PALLAS_LOG_FILE=str(file))
    assert (done.stdout, done.stderr) == ("", "")
    assert len(_records(file)) == 4 + 4 * 2 + 3 + 1


@pytest.mark.slow
def test_the_journal_gets_the_same_lines_when_asked_for(file: Path) -> None:  # PR-34
    done = _run(CHATTER, PALLAS_LOG_FILE=str(file), PALLAS_LOG_STDERR="1")
    assert done.stdout == ""
    assert done.stderr == file.read_text()


@pytest.mark.slow
def test_a_screen_can_refuse_the_journal(file: Path) -> None:  # PR-33
    program = CHATTER.replace('setup_logging("debug")', 'setup_logging("debug", stderr=False)')
    assert _run(program, PALLAS_LOG_FILE=str(file), PALLAS_LOG_STDERR="1").stderr == ""


def test_records_are_on_disk_when_the_process_is_killed(file: Path) -> None:
    program = (
        "import logging, os, signal; from pallas.telemetry.log import setup_logging; setup_logging()\n"
        "logging.getLogger('pallas').info('last words'); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with pytest.raises(subprocess.CalledProcessError):
        _run(program, PALLAS_LOG_FILE=str(file))
    assert _messages(file) == ["last words"]


def test_closing_leaves_logging_as_it_was(file: Path) -> None:
    last_resort, raising = logging.lastResort, logging.raiseExceptions
    handlers = list(logging.getLogger().handlers)
    setup_logging(path=file)
    close_logging()
    close_logging()
    assert (logging.lastResort, logging.raiseExceptions) == (last_resort, raising)
    assert logging.getLogger().handlers == handlers


@pytest.mark.parametrize("for_good", [True, False])
def test_what_threads_still_log_when_the_process_is_about_to_end_goes_nowhere(
    tmp_path: Path, for_good: bool
) -> None:
    # PR-33: in a process of its own, where nobody else listens to the root logger.
    code = (
        "import logging\nfrom pallas.telemetry.log import close_logging, setup_logging\n"
        f"setup_logging(stderr=False)\nclose_logging(for_good={for_good})\n"
        "logging.getLogger('late').warning('babble')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PALLAS_LOG_FILE": str(tmp_path / "pallas.log")},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ("babble" in done.stderr) is not for_good
