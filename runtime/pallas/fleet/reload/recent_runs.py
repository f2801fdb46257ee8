"""The last runs of agents as recordings in files, for what judges them. The ledger is only read."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from pallas.model import Fault, RunRecord
from pallas.recordings.recording_folder import archive_of
from pallas.runs.run_recording import portable_recording

from ..context import FleetContext
from .verdict_judge import RecentRun

if TYPE_CHECKING:
    from pallas.ledger import Ledger

_LOOKED_AT: Final = 3
"""How many times as many runs are looked at as are wanted: some ask the same again."""
_PAGE: Final = 200
_SETTLE: Final = 1.0
"""Seconds that runs which have just ended have to be stored."""
_SURFACES: Final = frozenset({"replay", "test"})
"""Where runs come from that no caller asked for."""


@dataclass(frozen=True, slots=True)
class _Written:
    run: RecentRun
    question: str


class RecentRuns:
    """Writes recordings of the last runs to a folder of its own. Belongs to the fleet's event loop."""

    def __init__(self, fleet: FleetContext, ledger: "Callable[[], Ledger | None]") -> None:
        self._fleet = fleet
        self._ledger = ledger
        self._folder: TemporaryDirectory[str] | None = None
        self._written: dict[str, _Written] = {}

    async def of(self, agents: Collection[str], count: int) -> tuple[RecentRun, ...]:
        """The last ``count`` runs of each agent that began from outside and ask different things."""
        ledger = self._ledger()
        if not count or ledger is None:
            return ()
        if (recorder := self._fleet.kernel.recorder) is not None:
            await recorder.settle(_SETTLE)
        found: dict[str, RecentRun] = {}
        for agent in agents:
            page = await ledger.runs.list(agent=agent, limit=min(_PAGE, _LOOKED_AT * count))
            asked: dict[str, RecentRun] = {}
            for record in page.items:
                if len(asked) >= count:
                    break
                if _is_from_outside(record) and (written := await self._write(ledger, record)) is not None:
                    asked.setdefault(written.question, written.run)
            found |= {run.id: run for run in asked.values()}
        await self._forget_others(found)
        return tuple(found.values())

    def close(self) -> None:
        """Delete the folder."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._written.clear()

    async def _write(self, ledger: "Ledger", record: RunRecord) -> _Written | None:
        """The run in a file; None for one that cannot be recorded. A run that is over does not change."""
        if record.id not in self._written:
            try:
                recording = await portable_recording(
                    self._fleet.kernel, ledger, self._fleet.project, record.id
                )
            except Fault:
                return None  # it is not stored yet, or too large
            data = await asyncio.to_thread(archive_of, recording)
            file = await asyncio.to_thread(self._place, record.id, data)
            self._written[record.id] = _Written(
                RecentRun(record.id, record.agent, file), recording.first.question
            )
        return self._written[record.id]

    def _place(self, run_id: str, data: bytes) -> Path:
        self._folder = self._folder or TemporaryDirectory(prefix="pallas-runs-", ignore_cleanup_errors=True)
        file = Path(self._folder.name) / f"{run_id}.tar"
        file.write_bytes(data)
        return file

    async def _forget_others(self, wanted: Collection[str]) -> None:
        gone = [each for each in self._written if each not in wanted]
        files = [self._written.pop(each).run.file for each in gone]

        def forget() -> None:
            for file in files:
                file.unlink(missing_ok=True)

        await asyncio.to_thread(forget)


def _is_from_outside(run: RunRecord) -> bool:
    return (
        run.status in ("ok", "error")
        and not run.within
        and not run.caused_by
        and not run.forked_from
        and run.surface not in _SURFACES
    )
