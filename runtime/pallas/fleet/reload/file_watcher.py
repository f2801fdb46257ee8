"""Watches every file in a project's folders, and starts again after every failure."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from time import monotonic, time
from typing import Any, Final, Literal

from pallas.deadlines import cancel_and_wait

from .folder_events import LONGEST, QUIET, Change, EventsLostError, folder_events, takes_any_name
from .watched_folders import (
    MAX_FOLDERS,
    changed_at,
    changed_since,
    folders_of,
    is_skipped,
    stamps,
)

log = logging.getLogger(__name__)

# Seconds within which every change seen is reported.
_LAST_WORDS: Final = (LONGEST + 2 * QUIET) / 1000
# Files whose last report is remembered; with more, some are reported twice.
_MAX_LATELY: Final = 1_000
# Seconds between two looks where the system tells nothing by itself.
POLL: Final = 0.25
# Seconds until it is tried again after it failed, doubled each time up to the second number.
_AGAIN: Final = (0.5, 30.0)
# One that ran for so many seconds has failed for a new reason.
_STEADY: Final = 60.0

Tell = Callable[[Literal["info", "warning", "error"], str], None]
_Changes = Iterable[Change]


class FileWatcher:
    """Tells ``on_change`` of the paths that changed below ``root``, some 25 ms after the last of them.

    A folder may be among them, for everything in it. ``missed`` is called when changes may have gone unheard.
    The system's notifications are used where there are any, else (or with ``WATCHFILES_FORCE_POLLING``) every
    file is looked at four times a second. Belongs to one event loop.
    """

    def __init__(
        self,
        root: Path,
        on_change: Callable[[frozenset[Path]], None],
        missed: Callable[[], None],
        tell: Tell,
        *,
        polling: bool | None = None,
    ) -> None:
        self._root = root
        self._on_change = on_change
        self._missed = missed
        self._tell = tell
        self._polling = _should_poll() if polling is None else polling
        self._others: frozenset[Path] = frozenset()
        self._trees: frozenset[Path] = frozenset()
        self._regroup = asyncio.Event()
        self._anew = False
        self._told_many = False
        # When the files that were reported lately were written, by the file system.
        self._lately: dict[Path, float] = {}
        self.ready = asyncio.Event()

    def also(self, folders: frozenset[Path], trees: frozenset[Path] = frozenset()) -> None:
        """Look into these folders too, wherever they are, and into none of those named before.

        Of ``trees``, the folders in them too. Those that are not there yet are looked into when they are.
        """
        if (folders, trees) != (self._others, self._trees):
            self._others, self._trees = folders, trees
            self._regroup.set()

    async def run(self) -> None:
        """Watch until cancelled. Report a failure, and begin again."""
        logging.getLogger("watchfiles").setLevel(logging.WARNING)  # a line for each change says nothing
        pause = _AGAIN[0]
        while True:
            began = monotonic()
            try:
                await self._watch()
                problem = "it ended unexpectedly"
            except EventsLostError as error:
                log.info("%s: all files are looked at", error)
                continue  # the next watch reports that changes were missed
            except OSError as error:
                problem = error.strerror or str(error)
                if not self._polling and not isinstance(error, FileNotFoundError):
                    self._polling, pause = True, _AGAIN[0]
                    problem += "; the files are looked at four times a second instead"
            except Exception as error:
                log.exception("the watcher of the project's files failed")
                problem = f"{type(error).__name__}; the log has the details"
            if monotonic() - began > _STEADY:
                pause = _AGAIN[0]
            text = f"changes of the project's files could not be followed: {problem}"
            log.warning("%s", text)
            self._tell("warning", text)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _AGAIN[1])

    async def _watch(self) -> None:
        """Follow one set of folders after the other, each begun before the last one ends."""
        following: asyncio.Task[None] | None = None
        self._anew = True
        known: frozenset[str] | None = None
        try:
            while True:
                self._regroup.clear()
                began = time()
                folders, many = await asyncio.to_thread(folders_of, self._root, self._others, self._trees)
                self._tell_many(many)
                if folders != known or self._anew:
                    self._anew = False
                    begun = asyncio.Event()
                    before = following
                    following = asyncio.create_task(self._follow(folders, begun), name="files followed")
                    await _first(following, begun)
                    if before is None or known is None:
                        self._missed()
                    else:
                        await asyncio.sleep(_LAST_WORDS)  # it may have heard something already
                        await _ended(before)
                        # What it had no time to tell, and what stood in new folders before that.
                        changed = await asyncio.to_thread(changed_since, known, began - _LAST_WORDS)
                        changed |= await asyncio.to_thread(changed_since, folders - known, 0.0)
                        self._on_change(frozenset(p for p in changed if self._lately.get(p) != changed_at(p)))
                known = folders
                self.ready.set()
                assert following is not None
                await _first(following, self._regroup)
        finally:
            if following is not None:
                await _ended(following)

    async def _follow(self, folders: frozenset[str], begun: asyncio.Event) -> None:
        polls = self._polling or not (takes_any_name() or all(map(_is_utf8, folders)))
        source = self._polled(folders, begun) if polls else self._notified(folders, begun)
        async for changes in source:
            paths = frozenset(Path(path) for _, path in changes)
            if any(added and self._is_new_folder(Path(path)) for added, path in changes):
                self._anew = True  # also one that was there before: it is another one now
                self._regroup.set()
            if len(self._lately) > _MAX_LATELY:
                self._lately.clear()
            self._lately |= {path: changed_at(path) for path in paths}
            self._on_change(paths)

    async def _notified(self, folders: frozenset[str], begun: asyncio.Event) -> AsyncIterator[_Changes]:
        batches = folder_events(folders)
        following = asyncio.ensure_future(anext(batches))
        try:
            await asyncio.sleep(0)  # it asks the system before it waits for the first time
            begun.set()
            while True:
                yield await following
                following = asyncio.ensure_future(anext(batches))
        except StopAsyncIteration:
            return
        finally:
            await _ended(following)
            await batches.aclose()

    async def _polled(self, folders: frozenset[str], begun: asyncio.Event) -> AsyncIterator[_Changes]:
        before = await asyncio.to_thread(stamps, folders)
        begun.set()
        while True:
            await asyncio.sleep(POLL)
            now = await asyncio.to_thread(stamps, folders)
            changed = {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}
            if changed:
                yield [(path not in before, path) for path in changed]
            before = now

    def _is_new_folder(self, path: Path) -> bool:
        if not path.is_dir():
            return False
        return path in self._others or (not path.is_symlink() and not is_skipped(path))

    def _tell_many(self, many: bool) -> None:
        if many and not self._told_many:
            self._tell("warning", f"the project has more than {MAX_FOLDERS} folders; the rest is not watched")
        self._told_many = many


async def _first(task: asyncio.Task[None], event: asyncio.Event) -> None:
    """Until ``event`` is set. Raises what ends ``task`` before."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not event.is_set():
            task.result()
            raise RuntimeError("the watch ended")
    finally:
        waiting.cancel()


async def _ended(task: asyncio.Future[Any]) -> None:
    await cancel_and_wait(task, seconds=2.0)
    if task.done() and not task.cancelled():
        task.exception()  # it was told where it happened, or does not matter any more


def _should_poll() -> bool:
    setting = os.environ.get("WATCHFILES_FORCE_POLLING", "").strip().lower()
    return bool(setting) and setting not in ("false", "disable", "disabled", "0", "no")


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
