"""Run a command, and once more if it fails: ``python tools/second_try.py NAME COMMAND...``.

For what runs as a whole only: the conformance suite, the soak and the rehearsal of a rolling update. Prints
how both runs ended and returns the status of the last one. A command that passed only then is in
``build/flaky.json``.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from flaky_report import Flaky, report_flaky

LONGEST_S: Final = 1800
"""Seconds that a run may take; what runs twice takes minutes."""


def main(name: str, command: Sequence[str]) -> int:
    """Run it once or twice."""
    first, first_s = _run(command)
    if first == 0:
        report_flaky(name, [])
        return first
    print(f"\n{name} failed with {_status(first)}; it runs once more", flush=True)
    second, second_s = _run(command)
    print(f"\n{name}, run 1: {_status(first)} after {first_s:.0f} s")
    print(f"{name}, run 2: {_status(second)} after {second_s:.0f} s", flush=True)
    report_flaky(name, [] if second else [Flaky(name, _status(first), first_s, second_s)])
    return second


def _run(command: Sequence[str]) -> tuple[int, float]:
    """Returns the status, and the seconds it took."""
    began = monotonic()
    process = subprocess.Popen(command, start_new_session=True)
    try:
        status = process.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        print(f"{command[0]} did not end within {LONGEST_S} s", file=sys.stderr)
        status = 124  # as of the command timeout
    finally:
        with suppress(ProcessLookupError):  # with what the command started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return status, monotonic() - began


def _status(number: int) -> str:
    return f"status {number}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
