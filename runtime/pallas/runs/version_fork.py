"""A run that goes on from a step of another one with another version of its project, in a process of its own.

The process checks out the version, serves it with a ledger in memory, and ends with the caller's task.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pallas.model import Fault, FaultType, Recording
from pallas.processes.child_program import run
from pallas.recordings.recording_folder import BadRecording, archive_of, read
from pallas.safe_text import one_line, sanitize

DEADLINE: Final = 600.0
"""Seconds that such a run may take, with the start of its fleet."""
_GIT_S: Final = 20.0
_MAX_REPORT: Final = 16 * 1024 * 1024
_MAX_WHY: Final = 2_000
_REVISION: Final = re.compile(r"(?!-)(?!.*\.\.)[\w./~^@{}+-]{1,200}", re.ASCII)
_COMMIT: Final = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64})\s*")


@dataclass(frozen=True, slots=True)
class VersionFork:
    """The run that came of it. ``version`` is the commit that ran."""

    recording: Recording
    version: str


async def commit_of(root: Path, revision: str) -> str:
    """The commit that a revision of git names in a project's folder.

    Raises Fault (PROTOCOL) for one that names none, CONFIG where there is no git.
    """
    shown = one_line(revision, 60)
    if not _REVISION.fullmatch(revision):
        raise _wrong(f"{shown} is no revision of git; name a commit, a branch or a tag")
    command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    ran = await run(command, timeout=_GIT_S, limit=1_000, cwd=root, complains=True)
    if found := _COMMIT.fullmatch(ran.output):
        return found[1].decode()
    if ran.status is None:
        raise Fault(FaultType.CONFIG, f"version: {ran.problem}", data={"key": "version"})
    why = one_line(ran.complaint.decode("utf-8", "replace"), 200).removeprefix("fatal: ")
    raise _wrong(f"{shown} is no revision of the project{f': {why}' if why else ''}")


async def forked_version(
    recording: Recording, changes: Mapping[str, Any], version: str, root: Path
) -> VersionFork:
    """Go on from the step ``changes["step"]`` with the version of the project in ``root`` that git knows.

    ``changes`` may have another ``message``, ``result`` and ``model``. Raises Fault: PROTOCOL for a version
    that there is not, CONFIG with what `pallas fork` complains of, TIMEOUT.
    """
    commit = await commit_of(root, version)
    # Without waiting for a thread: a cancelled caller leaves no folder behind.
    with TemporaryDirectory(prefix="pallas-fork-") as folder:
        before, after, given = (Path(folder, name) for name in ("before.tar", "after", "changes.json"))
        given.write_text(json.dumps(dict(changes)))
        await asyncio.to_thread(lambda: before.write_bytes(archive_of(recording)))
        options = ("--at", str(changes["step"]), "--changes", str(given), "--version", commit)
        command = [sys.executable, "-m", "pallas.server", "fork", str(before), *options]
        command += ["--record", str(after), "-o", "json", "-p", str(root)]
        # Its temporary files, a copy of the project among them, go with the folder if it is killed.
        env = {**os.environ, "TMPDIR": folder}
        ran = await run(command, timeout=DEADLINE, limit=_MAX_REPORT, cwd=root, complains=True, env=env)
        try:
            return VersionFork(await asyncio.to_thread(read, after), commit)
        except (BadRecording, OSError):
            said = sanitize(ran.complaint.decode("utf-8", "replace"), _MAX_WHY).strip()
            type_ = FaultType.TIMEOUT if ran.status is None else FaultType.CONFIG
            why = said.removeprefix("pallas fork: ") or ran.problem or "pallas fork gave no recording"
            raise Fault(type_, f"version {one_line(version, 60)}: {why}") from None


def _wrong(problem: str) -> Fault:
    return Fault(FaultType.PROTOCOL, f"version: {problem}", data={"key": "version"})
