"""Runs imports of user code in a separate thread, which may take as long as it likes."""

import asyncio
import ctypes
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

AT: Final = "at "
"""The prefix of the note with the position of the cancelled work."""


class GivenUp(BaseException):
    """Raised in a thread whose result is no longer wanted."""


waiting_loop: Final[ContextVar[asyncio.AbstractEventLoop | None]] = ContextVar("pallas_beside", default=None)
"""The loop that waits for the code of this context, None if none does."""


async def run_in_import_thread[T](work: Callable[[], T], name: str, root: Path) -> T:
    """Run ``work`` in a daemon thread called ``name``, with the caller's context, and return its result.

    On cancellation the thread goes on by itself: ``GivenUp`` is raised in it as soon as it executes Python
    again. The log, and a note of the cancellation (``at FILE:LINE``), give its position below ``root``.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()
    context = copy_context()
    context.run(waiting_loop.set, loop)

    def settle(result: T | None, error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(result)  # type: ignore[arg-type]
        else:
            outcome.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            # Old code calls for the current event loop when it is imported.
            asyncio.set_event_loop(loop)
            result = context.run(work)
        except BaseException as raised:
            error = raised if isinstance(raised, Exception) else _wrapped(raised)
        finally:
            asyncio.set_event_loop(None)
        with suppress(RuntimeError):  # the loop is closed, and no caller waits
            loop.call_soon_threadsafe(settle, result, error)

    def guarded() -> None:
        with suppress(GivenUp):  # it may arrive after the work is done
            run()

    thread = threading.Thread(target=guarded, name=name, daemon=True)
    thread.start()
    try:
        return await outcome
    except asyncio.CancelledError as cancelled:
        if thread.is_alive():
            place = where(thread, root)
            log.warning("%s is abandoned; it was at %s", name, place or "no line of the project")
            if place:
                cancelled.add_note(f"{AT}{place}")
            _raise_in(thread)
        raise


def where(thread: threading.Thread, root: Path) -> str:
    """Return the project's line that a thread executes, as ``file:line``; empty for none."""
    frame = sys._current_frames().get(thread.ident or 0)
    for place in reversed(traceback.extract_stack(frame) if frame is not None else ()):
        path = Path(place.filename)
        if path.is_relative_to(root):
            return f"{path.relative_to(root)}:{place.lineno}"
    return ""


def _wrapped(error: BaseException) -> Exception:
    """Wrap an exception that a future cannot hold."""
    wrapped = RuntimeError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def _raise_in(thread: threading.Thread) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(GivenUp))
