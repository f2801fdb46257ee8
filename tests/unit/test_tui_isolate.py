"""The terminal belongs to the screen; everything else that is printed ends up in the log."""

import json
import os
import pty
import select
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from pallas_tui.isolate import LineAllowance, OutputLines

PRELUDE = """
import ctypes, json, logging, os, subprocess, sys, threading, warnings
from pallas_tui.isolate import isolate

# Open from the start: a file opened later might be given a descriptor that a test has closed.
sink = open(sys.argv[1], "a", buffering=1)

class Sink(logging.Handler):
    def emit(self, record):
        fields = [getattr(record, "source", None), record.levelname, record.getMessage()]
        sink.write(json.dumps(fields) + "\\n")

early = logging.StreamHandler()
logging.getLogger("early").addHandler(early)
logging.getLogger().addHandler(Sink())
logging.getLogger().setLevel(logging.INFO)
"""


def run_in_terminal(tmp_path: Path, body: str, deadline: float = 30.0) -> tuple[str, list[list[str]], int]:
    """Run a script on a terminal of its own: what was drawn there, the log records, the exit status."""
    script = tmp_path / "script.py"
    script.write_text(PRELUDE + textwrap.dedent(body))
    sink = tmp_path / "sink.jsonl"
    sink.touch()
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(script), str(sink)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    drawn = b""
    until = time.monotonic() + deadline
    while time.monotonic() < until:
        if not select.select([master], [], [], 0.2)[0]:
            continue
        try:
            data = os.read(master, 65_536)
        except OSError:  # the last one has closed the terminal
            break
        if not data:
            break
        drawn += data
    else:
        process.kill()
        pytest.fail(f"still running after {deadline} s; drawn so far: {drawn!r}")
    os.close(master)
    status = process.wait(60)
    return drawn.decode(), [json.loads(line) for line in sink.read_text().splitlines()], status


NOISES = """
guard = isolate()
guard.terminal.write("SCREEN ")
os.write(1, b"noise fd one\\n")
os.write(2, b"noise fd two\\n")
libc = ctypes.CDLL(None)
libc.puts(b"noise of C")
libc.fflush(None)
subprocess.run(["sh", "-c", "echo noise child out; echo noise child err >&2"], check=True)
logging.getLogger("early").error("noise handler made early")
print("noise print")
sys.stderr.write("noise stderr\\n")
warnings.warn("noise warning")
logging.lastResort.handle(logging.makeLogRecord({"msg": "noise last resort", "levelno": 40}))

def fail():
    print("noise thread")
    raise RuntimeError("noise traceback")

thread = threading.Thread(target=fail)
thread.start()
thread.join()
guard.terminal.write("STILL ")
guard.restore()
print("AFTER")
"""


def test_twelve_kinds_of_noise_reach_the_log_and_never_the_terminal(tmp_path: Path) -> None:
    # PR-33
    drawn, records, status = run_in_terminal(tmp_path, NOISES)
    assert status == 0
    assert drawn.split() == ["SCREEN", "STILL", "AFTER"]
    stray = {(source, message) for source, _, message in records if source}
    for source, message in (
        ("stdout", "noise fd one"),
        ("stderr", "noise fd two"),
        ("stdout", "noise of C"),
        ("stdout", "noise child out"),
        ("stderr", "noise child err"),
        ("stderr", "noise handler made early"),
        ("stdout", "noise print"),
        ("stderr", "noise stderr"),
        ("stderr", "noise last resort"),
        ("stdout", "noise thread"),
        ("stderr", "RuntimeError: noise traceback"),
    ):
        assert (source, message) in stray
    assert any(source == "stderr" and "UserWarning: noise warning" in text for source, text in stray)
    assert {level for source, level, _ in records if source == "stdout"} == {"INFO"}
    assert {level for source, level, _ in records if source == "stderr"} == {"WARNING"}


def test_a_root_handler_that_prints_does_not_send_a_line_round_for_ever(tmp_path: Path) -> None:
    body = """
    logging.getLogger().addHandler(early)
    guard = isolate()
    os.write(2, b"once\\n")
    guard.restore()
    """
    drawn, records, status = run_in_terminal(tmp_path, body)
    assert (status, drawn) == (0, "")
    assert [message for _, _, message in records] == ["once"]


def test_a_flood_never_blocks_its_writer_and_is_told_in_one_line(tmp_path: Path) -> None:
    body = """
    guard = isolate()
    for _ in range(200):
        os.write(1, b"x\\n" * 500)
    guard.restore()
    """
    drawn, records, status = run_in_terminal(tmp_path, body)
    assert (status, drawn) == (0, "")
    lines = [message for _, _, message in records if message == "x"]
    left_out = [int(message.split()[0]) for _, _, message in records if "left out" in message]
    assert left_out
    assert len(lines) + sum(left_out) == 100_000
    assert len(lines) < 50_000


def test_a_crash_gives_the_terminal_back(tmp_path: Path) -> None:
    body = """
    guard = isolate()
    try:
        raise SystemExit("the reason, readable")
    finally:
        guard.restore()
        guard.restore()
    """
    drawn, _, status = run_in_terminal(tmp_path, body)
    assert status == 1
    assert drawn.strip() == "the reason, readable"


def test_a_closed_descriptor_does_not_keep_the_reader_busy(tmp_path: Path) -> None:
    body = """
    from collections import Counter
    import pallas_tui.isolate as isolation
    ends, ended, read = Counter(), threading.Event(), isolation._read

    def counted(fd):
        if (data := read(fd)) == b"":
            ends[fd] += 1
            ended.set()
        return data

    isolation._read = counted
    guard = isolate()
    os.close(2)
    ended.wait()
    os.write(1, b"other pipe still read\\n")
    guard.restore()
    sys.exit(max(ends.values()))
    """
    _, records, status = run_in_terminal(tmp_path, body)
    assert status == 1, "the end of a pipe is read once"
    assert ["stdout", "INFO", "other pipe still read"] in records


def test_a_child_that_outlives_the_screen_leaves_the_terminal_alone(tmp_path: Path) -> None:
    body = """
    guard = isolate()
    child = subprocess.Popen(["sh", "-c", "read go; echo late"], stdin=subprocess.PIPE)
    guard.restore()
    child.communicate(b"go\\n")
    """
    drawn, _, status = run_in_terminal(tmp_path, body)
    assert (status, drawn) == (0, "")


def test_long_lines_are_cut_and_the_next_line_is_whole() -> None:
    lines = OutputLines(limit=10)
    out = [*lines.feed(b"a" * 100 + b"\nnext\n"), *lines.feed(b"b" * 50), *lines.feed(b"b" * 50 + b"\nlast")]
    assert out == ["a" * 9 + "…", "next", "b" * 9 + "…"]
    assert list(lines.flush()) == ["last"]


def test_terminal_controls_are_made_visible_and_blank_lines_left_out() -> None:
    lines = OutputLines()
    assert list(lines.feed(b"\x1b[31mred\r\n\n  \n\xff\n")) == ["␛[31mred", "�"]


def test_the_allowance_grows_back_with_time() -> None:
    allowance = LineAllowance(rate=2, burst=3)
    assert [allowance.take(10.0) for _ in range(4)] == [True, True, True, False]
    assert [allowance.take(11.0) for _ in range(3)] == [True, True, False]
