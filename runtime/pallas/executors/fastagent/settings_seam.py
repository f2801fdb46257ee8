"""Reads fast-agent's settings in the fleet's loop, even for code that is imported in a thread."""

from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, Final

from fast_agent import FastAgent

from pallas.mcp_client.library_hooks import Hook

from .import_thread import waiting_loop

# Seconds that the loop has to do this for a thread: it may be busy with user code.
_PATIENCE: Final = 60.0


def _in_the_loop(load_config: Any) -> Any:
    """Read the settings in the loop: during this the process's are None, which no other code of the loop
    may see."""

    def _load_config(self: Any) -> Any:
        loop = waiting_loop.get()
        if loop is None:
            return load_config(self)
        done: Future[Any] = Future()
        context = copy_context()
        context.run(waiting_loop.set, None)

        def read() -> None:
            try:
                done.set_result(context.run(load_config, self))
            except BaseException as error:
                done.set_exception(error)

        loop.call_soon_threadsafe(read)
        return done.result(_PATIENCE)

    return _load_config


SETTINGS: Final = Hook("settings-in-the-loop", FastAgent, "_load_config", ("self",), _in_the_loop)
