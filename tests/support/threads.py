"""Fleets in a thread of their own, as the workbench holds them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pallas.fleet.threaded_fleet import ThreadedFleet


@contextmanager
def started(root: Path) -> Iterator[ThreadedFleet]:
    """The fleet of the project at ``root``, started and in the end stopped."""
    before = Path.cwd()
    fleet = ThreadedFleet(root)
    fleet.start()
    try:
        yield fleet
    finally:
        fleet.stop(10)
        os.chdir(before)
