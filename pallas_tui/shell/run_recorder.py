"""Writes recordings of runs, and makes tests of them."""

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pallas.model import Fault
from pallas.safe_text import one_line

from ..runs.feed_run import FeedRun
from ..text import count
from .overseer import Overseer

if TYPE_CHECKING:
    from pallas.model import Recording

DEADLINE: Final = 70.0
"""Seconds that a recording may take to arrive; the fleet gives up by itself a little before."""
_ELSEWHERE: Final = (
    "A test belongs to its project, and that of this fleet is not in this workbench. Record the run, or call "
    "`pallas keep` in the project's folder."
)


class CannotRecord(Exception):
    """The message says why, and what to do."""


class RunRecorder(Overseer):
    """``root`` is the folder of the project, None when that is elsewhere."""

    root: Path | None = None

    def record_run(self, run: FeedRun) -> None:
        """Write a run into a folder of recordings, in the project's or else in the current one."""
        self._start_recorder(run.id, partial(self._record, run.id), "record")

    def keep_run(self, run_id: str, replaced: str = "") -> None:
        """Make a test of a run: by a name that is asked for, or in place of the test ``replaced``."""
        if self.root is None:
            self._refuse(_ELSEWHERE)
        else:
            self._start_recorder(run_id, partial(self._keep, run_id, self.root, replaced), "keep")

    def _start_recorder(self, run_id: str, work: Callable[[], Awaitable[None]], verb: str) -> None:
        """Do one at a time; what goes wrong is said."""

        async def told() -> None:
            try:
                await work()
            except CannotRecord as error:
                self.notify(f"run {run_id}: {error}", severity="error", timeout=15, markup=False)

        # One that is under way is given up for the one asked for last.
        self.run_worker(told(), group="record", exclusive=True, description=f"{verb} a run")

    async def _record(self, run_id: str) -> None:
        from pallas.recordings.recording_folder import RECORDINGS, BadRecording, folder_name, write

        recording = await self._fetch(run_id)
        name = RECORDINGS / folder_name(recording.first.agent, recording.first.id)
        folder = (self.root or Path.cwd()) / name
        try:
            await asyncio.to_thread(write, recording, folder)
        except BadRecording as error:
            raise CannotRecord(one_line(str(error), 300)) from None
        except OSError as error:
            raise CannotRecord(_unwritten(folder, error)) from None
        steps = sum(len(each.steps) for each in recording.runs)
        size = f"{count(len(recording.runs), 'run')}, {count(steps, 'step')}"
        self._tell(f"Recorded into {name if self.root is not None else folder}: {size}.", recording)

    async def _keep(self, run_id: str, root: Path, replaced: str) -> None:
        from pallas.agent_tests.agent_test_file import FOLDER
        from pallas.agent_tests.kept_test import NameTaken, keep

        recording = await self._fetch(run_id)
        name = replaced or await self._ask_name(recording, root)
        if name is None:
            return
        try:
            path = await asyncio.to_thread(partial(keep, recording, root, name, replaces=bool(replaced)))
        except (NameTaken, ValueError) as error:
            raise CannotRecord(one_line(str(error), 300)) from None
        except OSError as error:
            raise CannotRecord(_unwritten(root / FOLDER, error)) from None
        self._tell(f"{path.relative_to(root)} is written; A runs it, or `pallas test {name}`.", recording)

    async def _ask_name(self, recording: "Recording", root: Path) -> str | None:
        """A name for the test of a recording; None if the user leaves."""
        from pallas.agent_tests.agent_test_file import FOLDER
        from pallas.agent_tests.kept_test import is_taken, name_of, name_problem

        from ..widgets.dialogs.line_dialog import LineScreen

        def check(name: str) -> str:
            if problem := name_problem(name.strip()):
                return problem
            taken = f"There is a test {one_line(name, 60)} already: choose another name, or remove that one."
            return taken if is_taken(root, name.strip()) else ""

        hint = f"The test is written to {FOLDER}/NAME.yaml, with its recording. Escape leaves."
        dialog = LineScreen("Name of the test", hint, name_of(recording), check=check)
        name = await self.push_screen_wait(dialog)
        return name.strip() if name is not None else None

    def _tell(self, text: str, recording: "Recording") -> None:
        self.notify(one_line(text, 400), markup=False)
        if recording.missing:
            missing = "; ".join(recording.missing[:3])
            self.notify(f"Not recorded: {one_line(missing, 300)}", severity="warning", markup=False)

    async def _fetch(self, run_id: str) -> "Recording":
        """The recording of a run, from its fleet. Raises CannotRecord."""
        from pallas.recordings.recording_folder import BadRecording, read_archive

        if self.fleet is None:
            raise CannotRecord("the fleet is not running, so its runs cannot be read; start it again")
        try:
            async with asyncio.timeout(DEADLINE):
                data = await self.fleet.recording(run_id)
            return await asyncio.to_thread(read_archive, b64decode(data), f"run {run_id}")
        except TimeoutError:
            raise CannotRecord(f"the fleet gave no recording within {DEADLINE:.0f} s; try again") from None
        except Fault as fault:
            raise CannotRecord(fault.message) from None
        except (BadRecording, ValueError) as error:
            raise CannotRecord(one_line(str(error), 300)) from None
        except Exception as error:  # a remote fleet may raise other errors
            raise CannotRecord(f"{type(error).__name__}: {one_line(str(error), 300)}") from None


def _unwritten(folder: Path, error: OSError) -> str:
    return f"{folder} cannot be written: {error.strerror or error}; change its rights, or make room"
