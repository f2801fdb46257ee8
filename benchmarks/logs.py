"""The log viewer on a million lines, beside toolong and lnav on the same file and terminal.

toolong is installed by pip into a folder of its own (.toolong); lnav by ``apt-get install lnav``.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

import psutil

from .log_file import LAST, LINES, RARE, RARE_LINE, make
from .report import Figure

HERE = Path(__file__).resolve().parent.parent
TOOLONG = HERE / ".toolong"
SIZE = (120, 40)
DEADLINE = 90.0


@dataclass(frozen=True, slots=True)
class Tool:
    """A log viewer: how it is started, which keys find the rare line, and what shows that it did."""

    name: str
    command: Sequence[str]
    keys: Sequence[Sequence[str]]
    found: str = RARE_LINE
    missing: str = ""


def measure() -> list[Figure]:
    """Ours from inside against the aims, then all of them from outside in a real tmux."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        path = Path(folder) / "big.log"
        make(path)
        size = path.stat().st_size
        plain = _plain_reading(path)
        detail = f"{LINES:,} lines, {size / 1e6:.0f} MB; reading them takes {plain:.2f} s"
        return [*_inside(path, detail), *_outside(path)]


def _plain_reading(path: Path) -> float:
    """Seconds to read the file once it is in the cache: what no search can be quicker than."""
    began = 0.0
    for _ in range(2):
        began = perf_counter()
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
    return perf_counter() - began


def _inside(path: Path, detail: str) -> list[Figure]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.log_viewer", "--measure", str(path)],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the viewer could not be measured:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout)

    def first(name: str) -> str:
        return f"first hit after {found[f'{name} first']:.3f} s, {found[f'{name} found']:,} lines"

    return [
        Figure("open: newest lines known", found["open"], 0.5, "s", detail),
        Figure("open: newest lines in a new application", found["painted"], None, "s"),
        Figure("all lines indexed", found["indexed"], None, "s"),
        Figure("memory added", found["megabytes"], 64, "MB", "after all searches"),
        Figure("CPU of a frame, one line scrolled, p50", found["scroll"], 8, "ms"),
        Figure("CPU of a frame, one line scrolled, p95", found["scroll p95"], None, "ms"),
        Figure("CPU of a frame, a jump anywhere, p50", found["jump"], None, "ms"),
        Figure("filter by level", found["level"], 0.15, "s", first("level")),
        Figure("filter by level, a regex put aside for it", found["aside"], None, "s"),
        Figure("filter by a rare substring", found["rare"], 0.4, "s", first("rare")),
        Figure("filter by a substring of every line", found["common"], None, "s", first("common")),
        Figure("filter by three fields", found["field"], None, "s", first("field")),
        Figure("filter by a regex", found["regex"], None, "s", first("regex")),
    ]


def _outside(path: Path) -> list[Figure]:
    figures: list[Figure] = []
    for tool in (_ours(path), _toolong(path), _lnav(path)):
        if tool.missing:
            print(f"     {tool.name} is left out: {tool.missing}", flush=True)
            continue
        opened, memory, search = _run(tool)
        figures += [
            Figure(f"{tool.name}: its start to the last line on screen", opened, None, "s"),
            Figure(f"{tool.name}: resident memory then", memory, None, "MB"),
            Figure(f"{tool.name}: keys pressed to the rare line found", search, None, "s"),
        ]
    return figures


def _ours(path: Path) -> Tool:
    command = (sys.executable, "-m", "benchmarks.log_viewer", str(path))
    return Tool("pallas", command, (("-l", f"/{RARE}"),))


def _toolong(path: Path) -> Tool:
    program = TOOLONG / "bin" / "tl"
    missing = ""
    if not program.exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", str(TOOLONG)], check=True, timeout=120)
            pip = [str(TOOLONG / "bin" / "python"), "-m", "pip", "install", "-q", "toolong==1.5.0"]
            subprocess.run(pip, check=True, timeout=300, capture_output=True)
        except (subprocess.SubprocessError, OSError) as error:
            missing = f"it could not be installed into {TOOLONG.name} ({type(error).__name__})"
    keys = (("C-f",), ("-l", RARE), ("Up",))
    return Tool("toolong", (str(program), str(path)), keys, missing=missing)


def _lnav(path: Path) -> Tool:
    missing = "" if shutil.which("lnav") else "it is not installed; apt-get install lnav"
    # It says how many it found; going there is another key.
    keys = (("/",), ("-l", RARE), ("Enter",))
    return Tool("lnav", ("lnav", str(path)), keys, "hits for", missing)


def _run(tool: Tool) -> tuple[float, float, float]:
    """Seconds until the end of the file is on screen, megabytes then, seconds of the search."""
    with _terminal() as tmux:
        began = perf_counter()
        tmux("send-keys", "-l", " ".join(tool.command))
        tmux("send-keys", "Enter")
        _until(tmux, LAST, tool.name)
        opened = perf_counter() - began
        sleep(5)  # until it has read the rest in the background, as a person would have
        memory = _memory(int(tmux("display-message", "-p", "#{pane_pid}")))
        began = perf_counter()
        for keys in tool.keys:
            tmux("send-keys", *keys)
        _until(tmux, tool.found, tool.name)
        return opened, memory, perf_counter() - began


def _until(tmux: "_Tmux", text: str, name: str) -> None:
    end = perf_counter() + DEADLINE
    while text not in (screen := tmux("capture-pane", "-p")):
        if perf_counter() > end:
            raise SystemExit(f"{name}: {text!r} was not on the screen within {DEADLINE:g} s:\n{screen}")
        sleep(0.005)


def _memory(shell: int) -> float:
    """Megabytes of all that runs below the shell of the terminal."""
    return sum(child.memory_info().rss for child in psutil.Process(shell).children(recursive=True)) / 1e6


class _Tmux:
    """Commands for one tmux server."""

    def __init__(self) -> None:
        self._name = f"pallas-{uuid.uuid4().hex[:8]}"

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._name, *arguments], capture_output=True, text=True, timeout=20, check=False
        )
        return done.stdout


@contextmanager
def _terminal() -> Iterator[_Tmux]:
    if not shutil.which("tmux"):
        raise SystemExit("the log viewers are measured in tmux; apt-get install tmux")
    tmux = _Tmux()
    columns, rows = map(str, SIZE)
    new = ("-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", rows, "-c", str(HERE))
    tmux(*new, "bash --norc --noprofile")
    try:
        sleep(0.5)
        yield tmux
    finally:
        tmux("kill-server")
