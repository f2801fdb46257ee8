"""A large JSON log, made the same each time."""

import json
import random
from pathlib import Path

LINES = 1_000_000
RARE = "xyzzy"
"""Stands in one line of the file, a twentieth from its beginning."""
RARE_LINE = "the rare line"
LAST = "the very last line"

_LEVELS = ["DEBUG"] * 30 + ["INFO"] * 60 + ["WARNING"] * 7 + ["ERROR"] * 3
_LOGGERS = ("pallas.fleet", "pallas.executors.fastagent.instance_pool", "mcp.client", "httpx2")
_AGENTS = ("research", "concierge", "vision")


def make(path: Path, lines: int = LINES) -> None:
    """Write so many lines of about 235 bytes."""
    chosen = random.Random(1)
    with path.open("w") as file:
        for number in range(lines):
            message = (
                f"request {number} answered with status 200 in {chosen.random():.3f} s after waiting in line"
            )
            if number == lines // 20:
                message = f"{RARE_LINE}: {RARE}"
            elif number == lines - 1:
                message = LAST
            record = {
                "time": f"2026-06-01T{number // 3_600_000 % 24:02}:{number // 60_000 % 60:02}:"
                f"{number // 1000 % 60:02}.{number % 1000:03}Z",
                "level": chosen.choice(_LEVELS),
                "logger": chosen.choice(_LOGGERS),
                "message": message,
                "agent": chosen.choice(_AGENTS),
                "run_id": f"{number // 50:012x}",
                "seq": number,
            }
            file.write(json.dumps(record) + "\n")
