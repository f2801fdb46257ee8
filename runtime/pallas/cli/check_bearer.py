"""`pallas check bearer`: does any caller's token reach another caller's call?"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

from pallas.config import ConfigError, export_env, load_project

_RULES: Final = {
    "forwarded": "each call carried its own caller's bearer",
    "configured": "the configured Authorization was sent, no caller's bearer",
    "none": "not opted in, no caller's bearer was sent",
}


def check_bearer(root: Path, callers: int, as_json: bool = False) -> int:
    """Print a line for each downstream of each agent, and return the exit status.

    The status is 0 when each call carried what it should, 1 when any bearer crossed or was missing, 2 when
    the project cannot be used. The tokens are canaries made for this run; none is printed.
    """
    try:
        export_env(root)
        project = load_project(root)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    from pallas.cli.bearer_check import check_bearer as run
    from pallas.fleet.child_processes import ending_children
    from pallas.processes.event_loop import run as in_loop
    from pallas.telemetry.log import close_logging, redact_project, setup_logging

    setup_logging(project.log_level, project=project.root)
    redact_project(project)
    try:
        with ending_children():
            verdicts = in_loop(run(project, callers))
    finally:
        close_logging()
    ok = all(verdict.ok for verdict in verdicts)
    if as_json:
        print(
            json.dumps(
                {"ok": ok, "verdicts": [asdict(each) | {"ok": each.ok} for each in verdicts]}, indent=2
            )
        )
        return 0 if ok else 1
    for verdict in verdicts:
        place = f"{verdict.agent} -> {verdict.downstream}" if verdict.downstream else verdict.agent
        if verdict.ok:
            print(f"ok   {place}: {verdict.calls} calls; {_RULES[verdict.rule]}")
        for problem in verdict.problems:
            print(f"LEAK {place}: {problem}" if verdict.downstream else f"FAIL {place}: {problem}")
    print(_summary(len(verdicts), callers, ok))
    return 0 if ok else 1


def _summary(checked: int, callers: int, ok: bool) -> str:
    if not checked:
        return "ok: no agent has a downstream with a URL, so no bearer goes anywhere"
    outcome = "ok: no bearer crossed" if ok else "NOT ok: see the lines above"
    return f"{outcome} ({checked} downstreams, {callers} callers at once in each protocol version)"
