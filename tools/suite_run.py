"""``make test``: run the tests side by side, then those that failed once more, alone.

The first argument names the run in ``build/flaky.json``, the others are pytest's. A test that passes alone
is reported as flaky and does not fail the run. One that fails again does, and so do more than ``MOST_AGAIN``
failed tests, a file that cannot be imported, and an error of pytest itself. Nothing runs a third time.

Each failure is printed at once, in a line of its own: a run that is cut short prints no summary.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

import pytest
from flaky_report import Flaky, report_flaky

MOST_AGAIN: Final = 20
"""Failed tests that run again. More of them have a cause in common, and the machine is not it."""
LONGEST_REASON: Final = 300
"""Characters of a reason in that line."""
LONGEST_ALONE_S: Final = 600
"""Seconds for one test alone, with the start of its process; pytest's own limit for a test is shorter."""


@dataclass(frozen=True)
class Failure:
    """A test that failed."""

    test: str
    """Its node id."""
    reason: str
    """The line with the exception."""
    seconds: float
    """How long it took until then."""


class Outcomes:
    """A pytest plugin that keeps which tests passed and failed, in all processes of pytest-xdist.

    It prints each failure at once.
    """

    def __init__(self, most: int | None = None) -> None:
        """More than ``most`` failures end the run, also where processes have more tests in their queues."""
        self._most = most
        self.failures: dict[str, Failure] = {}
        """By node id."""
        self.passed: set[str] = set()
        """Node ids."""
        self.is_whole = True
        """Whether each test ran: all files were imported, and nothing stopped the run early."""
        self._seconds: dict[str, float] = {}
        self._config: pytest.Config | None = None

    def pytest_configure(self, config: pytest.Config) -> None:
        """Note what says where the dots are printed."""
        self._config = config

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be imported: its tests do not run."""
        self.is_whole = self.is_whole and not report.failed

    @pytest.hookimpl(trylast=True)  # after its dot
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take one of a test's three reports (setup, call, teardown), or the one of a process that died."""
        test = report.nodeid
        self._seconds[test] = self._seconds.get(test, 0) + report.duration
        if report.failed:
            self.passed.discard(test)
            failure = Failure(test, _reason(report), self._seconds[test])
            self.failures.setdefault(test, failure)
            self._print(failure, report.when)
            if self._most is not None and len(self.failures) > self._most:
                pytest.exit(f"more than {self._most} tests failed", pytest.ExitCode.TESTS_FAILED)
        elif report.passed and report.when == "call":
            self.passed.add(test)

    def _print(self, failure: Failure, when: str | None) -> None:
        """Print a failure below the dots, which go on in the line after it."""
        if self._config is None:
            return
        what = f"ERROR at {when} of" if when in ("setup", "teardown") else "FAILED"
        writer = self._config.get_terminal_writer()
        if writer.width_of_current_line:
            writer.line()
        writer.line(f"{what} {failure.test} - {failure.reason[:LONGEST_REASON]}")
        writer.flush()

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Note a run that an option such as ``-x`` stopped."""
        self.is_whole = self.is_whole and not (session.shouldfail or session.shouldstop)


def _reason(report: pytest.TestReport) -> str:
    """The line with the exception; of a process that died, what pytest-xdist says of it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash is not None else report.longreprtext).strip().splitlines()
    return lines[0 if crash is not None else -1] if lines else "no reason given"


def run_alone(test: str) -> tuple[bool, float, str]:
    """Run one test in a process and a temporary folder of its own.

    Returns whether it passed, how many seconds that took, and what pytest printed.
    """
    # The number is for ``own_folders``, which removes it where this process is killed.
    folder = Path(tempfile.mkdtemp(prefix=f"pallas-alone-{os.getpid()}-"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    began = monotonic()
    process = subprocess.Popen(
        [*command, f"--basetemp={folder / 'tests'}", test],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LONGEST_ALONE_S)
    except subprocess.TimeoutExpired:
        output = f"{test} did not end within {LONGEST_ALONE_S} s"
    finally:
        with suppress(ProcessLookupError):  # with what the test started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    return process.returncode == 0, monotonic() - began, output


def main(run: str, arguments: Sequence[str]) -> int:
    """Run the tests; returns pytest's status, or 0 where all that failed passes alone."""
    outcomes = Outcomes(MOST_AGAIN)
    status = int(pytest.main(list(arguments), plugins=[outcomes]))
    failures = list(outcomes.failures.values())
    if status != pytest.ExitCode.TESTS_FAILED or not outcomes.is_whole or not failures:
        report_flaky(run, [])
        return status
    if len(failures) > MOST_AGAIN:
        print(f"\n{len(failures)} tests failed, more than {MOST_AGAIN}: none runs again")
        report_flaky(run, [])
        return status
    print(f"\n{len(failures)} failed; each runs again, alone", flush=True)
    flaky, failed = [], []
    for failure in failures:
        passed, seconds, output = run_alone(failure.test)
        if passed:
            flaky.append(Flaky(failure.test, failure.reason, failure.seconds, seconds))
        else:
            failed.append(failure.test)
            print(f"\n{output}", flush=True)
    report_flaky(run, flaky)
    for test in failed:
        print(f"FAILED {test} - beside others and alone")
    print(f"\n{len(outcomes.passed) + len(flaky)} passed, {len(failed)} failed", flush=True)
    return status if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
