"""Runs recorded questions again, and shows how they went next to their recordings."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pallas.safe_text import one_line

from ..runs.feed_run import FeedRun
from .run_forker import RunForker
from .run_recorder import DEADLINE as FETCHED_WITHIN
from .run_recorder import CannotRecord

if TYPE_CHECKING:
    from pallas.model import Recording

    from ..runs.run_comparison import Comparison, ReadComparison

_ELSEWHERE: Final = (
    "A replay runs the agents of its project, and that of this fleet is not in this workbench. Record the "
    "run, or call `pallas replay` in the project's folder."
)


class RunReplayer(RunForker):
    """Each replay is on a screen of its own, and ends with it."""

    def replay_run(self, run: FeedRun) -> None:
        """Ask the question of a run again, with what it got in place of models and tools."""
        root = self.root
        if root is None:
            self._refuse(_ELSEWHERE)
            return

        async def read() -> "Comparison":
            from ..runs.run_comparison import CannotCompare

            try:
                recording = await self._fetch(run.id)
            except CannotRecord as error:
                raise CannotCompare(str(error)) from None
            return await _replayed(recording, root)

        self._show_replay(f"{run.agent} {run.id[:12]}", read)

    def replay_recording(self, name: str, path: Path) -> None:
        """The same of a recording of the project; ``name`` is what it is of."""
        root = self.root
        if root is None:
            self._refuse(_ELSEWHERE)
            return

        async def read() -> "Comparison":
            from pallas.recordings.recording_folder import BadRecording
            from pallas.recordings.recording_folder import read as read_recording

            from ..runs.run_comparison import CannotCompare

            try:
                recording = await asyncio.to_thread(read_recording, path)
            except (BadRecording, OSError) as error:
                raise CannotCompare(one_line(str(error), 300)) from None
            return await _replayed(recording, root)

        self._show_replay(one_line(name, 60), read)

    def _show_replay(self, name: str, read: "ReadComparison") -> None:
        from ..runs.replay_process import DEADLINE
        from ..runs.run_comparison import DiffSource
        from ..screens.run_screen import DiffScreen

        source = DiffSource((name, f"replay of {name}"), read, FETCHED_WITHIN + DEADLINE, kind="replay")
        self.push_screen(DiffScreen(source, self.glyphs))


async def _replayed(recording: "Recording", root: Path) -> "Comparison":
    from ..runs.replay_process import replayed

    return await replayed(recording, root)
