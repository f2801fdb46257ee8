"""A recording run again with the project's agents, in a process of its own, and compared with itself."""

import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pallas.model import Recording
from pallas.processes.child_program import run
from pallas.recordings.recording_folder import archive_of, read
from pallas.recordings.run_diff import diff
from pallas.safe_text import one_line, sanitize

from .run_comparison import CannotCompare, Comparison

DEADLINE: Final = 600.0
"""Seconds that a replay may take, with the start of its fleet."""
_MAX_REPORT: Final = 64 * 1024 * 1024
_MAX_VERDICT: Final = 400
_MAX_WHY: Final = 2_000


async def replayed(recording: Recording, root: Path) -> Comparison:
    """Run a recorded question again with the agents of the project in ``root``, as its files are now.

    Models and tools answer from the recording; nothing real is called. It ends with the caller's task. Raises
    CannotCompare.
    """
    # Without waiting for a thread: a cancelled caller leaves no folder behind.
    with TemporaryDirectory(prefix="pallas-replay-") as folder:
        before, after = Path(folder, "before.tar"), Path(folder, "after.tar")
        await asyncio.to_thread(lambda: before.write_bytes(archive_of(recording)))
        options = ("-o", "json", "--into", str(after), "-p", str(root))
        command = [sys.executable, "-m", "pallas.server", "replay", str(before), *options]
        ran = await run(command, timeout=DEADLINE, limit=_MAX_REPORT, cwd=root, complains=True)
        try:
            report: dict[str, Any] = json.loads(ran.output)
            found = await asyncio.to_thread(lambda: diff(recording, read(after)))
            return Comparison(found, one_line(report["verdict"], _MAX_VERDICT), is_same=report["same"])
        except (ValueError, KeyError, TypeError, OSError):
            said = sanitize(ran.complaint.decode("utf-8", "replace"), _MAX_WHY).strip()
            raise CannotCompare(said or ran.problem or "pallas replay gave no report") from None
