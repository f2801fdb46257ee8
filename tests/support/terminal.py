"""A real terminal: a program in tmux, its keys and its screen."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """One tmux session on a server of its own, which listens at ``socket``."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def tmux(self, *arguments: str) -> str:
        """Run a tmux command; returns what it prints."""
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode and arguments[0] != "kill-server":
            raise AssertionError(f"tmux {arguments}: {done.stderr}")
        return done.stdout

    def keys(self, *keys: str) -> None:
        """Press keys by tmux's names, for example ``Enter`` or ``C-q``."""
        self.tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        """Type text as it is."""
        self.tmux("send-keys", "-l", text)

    def screen(self) -> str:
        """What the screen shows now, a line a row."""
        return self.tmux("capture-pane", "-p")

    def until(self, *texts: str, timeout: float = 60, gone: bool = False) -> str:
        """The screen as soon as it shows all the texts (or, with ``gone``, none of them)."""
        deadline = monotonic() + timeout
        while True:
            screen = self.screen()
            if all((text in screen) is not gone for text in texts):
                return screen
            if monotonic() > deadline:
                raise AssertionError(f"{texts} {'stayed on' if gone else 'not on'} the screen:\n{screen}")
            sleep(0.05)

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size."""
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))


@contextmanager
def terminal(
    command: str,
    *,
    columns: int = 120,
    rows: int = 40,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Terminal]:
    """A shell in a terminal of that size, in which ``command`` was typed."""
    settings = [
        argument for name, value in (environment or {}).items() for argument in ("-e", f"{name}={value}")
    ]
    with tempfile.TemporaryDirectory(prefix="pallas-tmux-", ignore_cleanup_errors=True) as folder:
        this = Terminal(Path(folder) / "socket")
        # Without a name for its history, bash writes none to the user's.
        this.tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), *settings,
            *(["-c", str(cwd)] if cwd else []), "env", "PS1=$ ", "HISTFILE=", "bash", "--norc", "--noprofile",
        )  # fmt: skip
        try:
            this.until("$")
            this.type(command)
            this.keys("Enter")
            yield this
        finally:
            this.tmux("kill-server")
