"""The ports of new projects: no two projects of this user get the same ones, whether they run or not."""

import fcntl
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from platformdirs.unix import Unix

from pallas.json_file import JsonFile

USUAL: Final = 24_300
"""The first port that is given: those before it are of the sample project, and the default for others."""
_EACH: Final = 20
"""How many ports a project gets, its first agents' among them."""
_END: Final = 32_000
"""Systems give the ports above to outgoing connections."""
_PATIENCE_S: Final = 5.0


class NoPorts(Exception):
    """Every port is taken; the message says what to do."""


def choose_ports(target: Path, is_ours: Callable[[int], bool] = lambda port: False) -> int:
    """Return the first of 20 ports that are free now and that no other project was given.

    Those that the project was given before come first, also where ``is_ours`` says that it runs there.
    The state directory remembers them until the project's folder is gone; a state directory that cannot be
    written is no reason to fail. Raises NoPorts.
    """
    root, state = str(target.resolve()), Unix("pallas", appauthor=False).user_state_path
    with _locked(state / "ports.lock"):
        book = JsonFile(state / "ports.json")
        found, _ = book.load()
        others = {
            path: port
            for path, port in (found.items() if isinstance(found, dict) else ())
            if path != root and Path(path).is_dir()
        }
        before = found.get(root) if isinstance(found, dict) else None
        if isinstance(before, int) and (_is_free(before) or is_ours(before)):
            return before
        free = (port for port in range(USUAL, _END, _EACH) if port not in others.values() and _is_free(port))
        first = next(free, 0)
        if not first:
            raise NoPorts(f"{target}: no {_EACH} free ports between {USUAL} and {_END}; delete old projects")
        with suppress(OSError):
            book.save({**others, root: first})
    return first


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time choose, where the file can be written, and wait for others 5 s at most."""
    deadline = monotonic() + _PATIENCE_S
    with ExitStack() as stack:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(path.open("w"))
            while monotonic() < deadline:
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                sleep(0.05)
        yield


def _is_free(first: int) -> bool:
    """Whether all ports of a project could be bound."""
    for port in range(first, first + _EACH):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("", port))
            except OSError:
                return False
    return True
