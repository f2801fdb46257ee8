"""`pallas lock`: write what the project's servers list into ``tools.lock``. `pallas check tools` compares."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pallas.config import Project
    from pallas.tools_lock.lock_check import CheckedServer
    from pallas.tools_lock.lock_file import ToolsLock

OK: Final = 0
DIFFERENT: Final = 1
"""Something differs and was not accepted."""
UNUSABLE: Final = 2
"""The project cannot be used, or a server could not be looked at."""


@dataclass(frozen=True, slots=True)
class LockOptions:
    """What is looked at. ``bearer_env`` names the variable of a token for servers that take a caller's."""

    root: Path
    servers: tuple[str, ...] = ()
    bearer_env: str = ""


def lock(options: LockOptions, *, yes: bool = False) -> int:
    """Show what differs, and write it into the lock: after a question, or with ``yes``.

    Return the exit status. A server that cannot be looked at keeps its entry.
    """
    from pallas.tools_lock.lock_check import relocked
    from pallas.tools_lock.lock_file import LOCK_FILE, ToolsLock, lock_path, lock_text, write_lock

    before, problem = _read(options.root)
    if problem:
        _complain(f"{problem}. The whole file is written again" if not options.servers else problem)
    if problem and options.servers:
        return UNUSABLE
    checked = _look(options, before or ToolsLock())
    if checked is None:
        return UNUSABLE
    unknown = _report(checked)
    text = lock_text(relocked(before or ToolsLock(), checked))
    path = lock_path(options.root)
    if path.is_file() and path.read_text("utf-8", "replace") == text:
        print(f"{LOCK_FILE} matches the servers" + (", as far as they answered" if unknown else ""))
        return UNUSABLE if unknown else OK
    if not yes and not _sure(LOCK_FILE):
        _complain(f"{LOCK_FILE} was not written")
        return DIFFERENT
    try:
        write_lock(options.root, relocked(before or ToolsLock(), checked))
    except Exception as error:
        return _failed(error)
    print(f"{LOCK_FILE} was written; commit it")
    return UNUSABLE if unknown else OK


def check_tools(options: LockOptions, *, as_json: bool = False, as_sarif: bool = False) -> int:
    """Compare the servers with the lock, print what differs, and return the exit status."""
    from pallas.tools_lock.lock_file import LOCK_FILE, lock_path

    from .tools_report import differs, is_unknown, json_report, sarif_report, text_report

    locked, problem = _read(options.root)
    if problem or locked is None:
        _complain(problem or f"there is no {LOCK_FILE}; write it with `pallas lock`")
        return UNUSABLE
    checked = _look(options, locked)
    if checked is None:
        return UNUSABLE
    different = [each for each in checked if differs(each)]
    unknown = [each for each in checked if is_unknown(each)]
    if as_sarif:
        print(sarif_report(checked, lock_path(options.root).read_text("utf-8")))
    elif as_json:
        print(json_report(checked))
    else:
        print(text_report(checked, with_texts=True), end="")
        print(_summary(len(checked), len(different), len(unknown)))
    return UNUSABLE if unknown else DIFFERENT if different else OK


def _summary(servers: int, different: int, unknown: int) -> str:
    if not different and not unknown:
        return f"ok: {servers} server{'s' * (servers != 1)} as locked"
    parts = (
        [f"{different} of {servers} differ; `pallas lock` shows and accepts the differences"]
        if different
        else []
    )
    parts += [f"{unknown} could not be compared"] if unknown else []
    return f"NOT ok: {'; '.join(parts)}"


def _read(root: Path) -> "tuple[ToolsLock | None, str]":
    from pallas.model import Fault
    from pallas.tools_lock.lock_file import read_lock

    try:
        return read_lock(root), ""
    except Fault as fault:
        return None, fault.message


def _look(options: LockOptions, locked: "ToolsLock") -> "tuple[CheckedServer, ...] | None":
    """Look at the servers; None if the project, or what was asked for, is wrong: that is on stderr."""
    from pallas.config import ConfigError, export_env, fill_unset, load_project

    try:
        export_env(options.root)
        project = load_project(options.root)
    except ConfigError as error:
        _complain(str(error))
        return None
    fill_unset(project.root, project.unset)
    bearer = os.environ.get(options.bearer_env, "") if options.bearer_env else ""
    if options.bearer_env and not bearer:
        _complain(f"--bearer-env: {options.bearer_env} is not set or empty; export it")
        return None
    try:
        return _checked(project, locked, options.servers, bearer)
    except Exception as error:
        _failed(error)
        return None


def _checked(
    project: "Project", locked: "ToolsLock", servers: Sequence[str], bearer: str
) -> "tuple[CheckedServer, ...]":
    from pallas.fleet.child_processes import ending_children
    from pallas.fleet.startup import children_use_our_python
    from pallas.model.redaction import redact
    from pallas.processes.event_loop import run
    from pallas.telemetry.log import close_logging, redact_project, setup_logging
    from pallas.tools_lock.lock_check import check_servers

    setup_logging(project.log_level, stderr=False, project=project.root)
    redact_project(project)
    if bearer:
        redact(bearer)
    children_use_our_python()
    try:
        with ending_children():
            return run(check_servers(project, locked, servers, bearer or None))
    finally:
        close_logging()


def _report(checked: "Sequence[CheckedServer]") -> bool:
    """Print what differs; return whether a server could not be looked at."""
    from .tools_report import differs, is_unknown, text_report

    shown = [
        each
        for each in checked
        if differs(each) or is_unknown(each) or each.compared.findings or each.left_out
    ]
    print(text_report(shown, with_texts=True), end="")
    return any(is_unknown(each) for each in checked)


def _sure(file: str) -> bool:
    if not sys.stdin.isatty():
        _complain("add --yes to write it without being asked")
        return False
    print(f"Write this into {file}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _failed(error: Exception) -> int:
    from pallas.model import Fault

    if not isinstance(error, Fault):
        raise error
    _complain(error.message)
    return UNUSABLE


def _complain(text: str) -> None:
    print(text, file=sys.stderr)
