"""``make ci``: all that a change must pass, the cheapest part first, with the time of each at the end.

The first part that fails ends the run. Only the standard library is used: nothing is installed yet.
"""

import subprocess
import sys
from collections.abc import Sequence
from time import monotonic
from typing import Final

PARTS: Final = (
    ("install",),
    ("lint",),
    ("docs",),
    ("rehearse",),
    ("soak", "SECONDS=60"),
    ("conformance",),
    ("test",),
    ("test-slow",),
)
"""Targets of the Makefile, with what is set for them."""


def main(parts: Sequence[Sequence[str]] = PARTS) -> int:
    """Make one part after the other; returns the status of the first that fails, else 0."""
    times: list[str] = []
    status = 0
    for part in parts:
        began = monotonic()
        print(f"\n== make {' '.join(part)}", flush=True)
        status = subprocess.run(["make", "--no-print-directory", *part], check=False).returncode
        times.append(f"{'failed' if status else 'passed':8}{monotonic() - began:8.0f} s  {part[0]}")
        if status:
            break
    print("\n" + "\n".join(times), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
