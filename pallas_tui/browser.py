"""The process of a workbench that is shown in a browser."""

import os
import signal
from collections.abc import Callable, Mapping
from threading import Thread
from time import sleep
from typing import Final

VARIABLE: Final = "PALLAS_WEB"
"""Set to 1 by `pallas dev --web` for each of its sessions; pictures are drawn with half cells then."""
_LOOK: Final = 1.0


def web_session(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process draws for a browser: its screen goes through a pipe, there is no terminal."""
    return environ.get(VARIABLE) == "1" and bool(environ.get("TEXTUAL_DRIVER"))


def end_with_parent(pause: Callable[[float], None] = sleep) -> Thread:
    """End this process in good order when the server that started it is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            pause(_LOOK)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = Thread(target=watch, name="parent", daemon=True)
    thread.start()
    return thread
