"""How a process of ours ends: with its loop still standing, and with a status that says why."""

import os
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, NoReturn

OUT_OF_MEMORY: Final = 97
"""The status of a process that had no memory to go on with."""


def run_and_leave(work: Coroutine[Any, Any, None]) -> NoReturn:
    """Do that in a loop of its own, then end the process.

    It is left while its loop still stands: the end of that cancels what runs, whose callers would hear of a
    cancel, and waits for threads of whoever started some.
    """
    from pallas.event_loop import new_runner

    with new_runner() as runner:
        status = 1
        try:
            runner.run(work)
            status = 0
        except SystemExit as exit_:  # an agent's code asked for it
            status = exit_.code if isinstance(exit_.code, int) else 1
        except MemoryError:
            status = OUT_OF_MEMORY
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            os._exit(status)
