"""What user code changes of the process while it is imported, put back where others would suffer from it."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)


@contextmanager
def kept(name: str) -> Iterator[None]:
    """The code of the agent ``name`` is imported in this block.

    Folder, standard streams and the switch that turns logging off are everybody's, and put back. What it adds
    to ``sys.path`` and to the environment stays for an agent that was made, each once, and is taken back when
    the block fails.
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
        with suppress(OSError):  # it may be gone
            if Path.cwd() != folder:
                os.chdir(folder)
                log.warning(
                    "%s: its module changes the working directory, which is everybody's: put back to %s",
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
