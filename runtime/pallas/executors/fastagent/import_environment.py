"""Restores process-wide state that user code changes while it is imported."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)


@contextmanager
def restored_environment(name: str, is_over: Callable[[], bool]) -> Iterator[None]:
    """Guard the import of the agent ``name`` in this block.

    Restores the working directory, the standard streams and the switch that turns logging off. Additions to
    ``sys.path`` and to the environment stay for an agent that was made, each once, and are removed if the
    block fails. If its fleet ``is_over``, the working directory is not its own any more, and is left alone.
    """
    folder, path, environment = Path.cwd(), list(sys.path), dict(os.environ)
    streams, silenced = (sys.stdout, sys.stderr), logging.root.manager.disable
    try:
        yield
    except BaseException:
        sys.path[:] = path
        _restore(environment)
        raise
    else:
        sys.path[:] = dict.fromkeys(sys.path)
    finally:
        with suppress(OSError):  # the directory may be gone
            if not is_over() and Path.cwd() != folder:
                os.chdir(folder)
                log.warning(
                    "%s: its module changes the working directory, which all agents share: restored to %s",
                    name,
                    folder,
                )
        sys.stdout, sys.stderr = streams
        logging.disable(silenced)


def _restore(environment: dict[str, str]) -> None:
    for key in set(os.environ) - set(environment):
        del os.environ[key]
    for key, value in environment.items():
        if os.environ.get(key) != value:
            os.environ[key] = value
