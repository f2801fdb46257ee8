"""Starts the official suite, as it lies in `.conformance/` after `make conformance` installed it."""

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path
from typing import Final

from .baseline import read_baseline
from .report import Outcome, ScenarioRun, read_report, read_scenario

ROOT: Final = Path(__file__).resolve().parents[2]
INSTALLED: Final = ROOT / ".conformance" / "node_modules"
BASELINES: Final = Path(__file__).parent / "baselines"
VERSIONS: Final = ("2025-11-25", "2026-07-28")
EXTENSION_VERSION: Final = VERSIONS[-1]
# Of an extension: the suite leaves them out of all that it runs for a version, and runs each by its name.
EXTENSION: Final = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)
TIMEOUT: Final = 180.0  # seconds for all scenarios of one version; they take two or three


def is_installed() -> bool:
    """Whether the suite and a node for it are there."""
    return _node().exists() and _entry().exists()


async def run_suite(agent: str, url: str, version: str, baseline: str) -> tuple[ScenarioRun, ...]:
    """Every scenario of ``version`` against ``url``, judged by the suite against ``baseline``'s file.

    Raises RuntimeError when the suite did not come to its end, or finds something that we cannot read.
    """
    file = BASELINES / f"{baseline}-{version}.yaml"
    entries = read_baseline(file)
    with tempfile.TemporaryDirectory(prefix="conformance-") as results:
        arguments = ["server", "--url", url, "--suite", "all", "--spec-version", version]
        arguments += ["--expected-failures", str(file), "--output-dir", results]
        status, printed = await _run([str(_node()), str(_entry()), *arguments])
        try:
            runs = read_report(printed, Path(results), agent=agent, version=version, baseline=entries)
        except ValueError as error:
            end = "\n".join(printed.splitlines()[-15:])
            raise RuntimeError(f"{agent}, {version}: {error} (exit status {status})\n{end}") from None
    if status and not any(run.outcome in (Outcome.FAILED, Outcome.STALE) for run in runs):
        raise RuntimeError(f"{agent}, {version}: the suite ended with {status} and does not say why")
    return runs


async def run_scenario(agent: str, url: str, scenario: str, baseline: str) -> ScenarioRun:
    """One scenario of ``EXTENSION`` against ``url``, judged against the file of ``baseline``'s tasks.

    Raises RuntimeError as ``run_suite``.
    """
    entries = read_baseline(BASELINES / f"{baseline}-tasks.yaml")
    if unknown := sorted({entry.scenario for entry in entries} - set(EXTENSION)):
        raise RuntimeError(f"the baseline names scenarios that are not run: {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(prefix="conformance-") as results:
        arguments = ["server", "--url", url, "--scenario", scenario, "--output-dir", results]
        status, printed = await _run([str(_node()), str(_entry()), *arguments])
        try:
            return read_scenario(
                Path(results), agent=agent, version=EXTENSION_VERSION, scenario=scenario, baseline=entries
            )
        except ValueError as error:
            end = "\n".join(printed.splitlines()[-15:])
            raise RuntimeError(f"{agent}: {error} (exit status {status})\n{end}") from None


async def _run(command: list[str]) -> tuple[int | None, str]:
    # No proxy stands between the suite and an agent on this machine.
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
    )
    try:
        async with asyncio.timeout(TIMEOUT):
            printed, _ = await process.communicate()
    except TimeoutError:
        raise RuntimeError(f"the suite did not end within {TIMEOUT:.0f} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return process.returncode, printed.decode(errors="replace")


def _node() -> Path:
    return INSTALLED / ".bin" / "node"


def _entry() -> Path:
    return INSTALLED / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
