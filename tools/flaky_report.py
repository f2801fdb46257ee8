"""What failed once and passed when it ran again: printed, and kept in ``build/flaky.json``."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

REPORT: Final = Path("build/flaky.json")
"""What was flaky in the last run of each name: ``test``, ``test-slow``, ``conformance``, ``soak``."""


@dataclass(frozen=True)
class Flaky:
    """A test, or a whole command, that failed once and passed when it ran again."""

    name: str
    """The test's node id, or the command's name."""
    reason: str
    """The line with the exception of the first failure."""
    first_s: float
    """How long it took when it failed, in seconds."""
    again_s: float
    """How long it took when it passed, in seconds."""


def report_flaky(run: str, found: Sequence[Flaky]) -> None:
    """Print what was flaky under that heading, and keep it in the place of the last such run's."""
    if found:
        print("\nflaky: failed once, passed alone. Find the cause; CONTRIBUTING.md says how.")
        for each in found:
            print(f"  {each.name}\n    failed in {each.first_s:.1f} s: {each.reason}")
            print(f"    passed in {each.again_s:.1f} s")
    runs: dict[str, object] = {}
    with suppress(FileNotFoundError, ValueError):
        runs = dict(json.loads(REPORT.read_text("utf-8")))
    REPORT.parent.mkdir(exist_ok=True)
    runs[run] = [asdict(each) for each in found]
    REPORT.write_text(json.dumps(runs, indent=1) + "\n", "utf-8")
