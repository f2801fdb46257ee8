"""The log file: rotation, sharing, and a disk that does not play along."""

import errno
import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pallas.telemetry.log.log_file import BACKUPS, MAX_BYTES, LogFileHandler


def _record(text: str) -> logging.LogRecord:
    return logging.LogRecord("pallas.test", logging.INFO, __file__, 1, text, (), None)


@contextmanager
def _log(path: Path, **options: int) -> Iterator[LogFileHandler]:
    handler = LogFileHandler(path, **options)
    try:
        yield handler
    finally:
        handler.close()


def _messages(path: Path) -> list[str]:
    return [json.loads(line)["message"] for line in path.read_text().splitlines() if line]


def test_the_file_is_ten_megabytes_and_five_old_ones() -> None:  # PR-35
    assert (MAX_BYTES, BACKUPS) == (10 * 1024 * 1024, 5)


def test_a_record_is_on_disk_when_the_call_returns(tmp_path: Path) -> None:
    with _log(tmp_path / "new" / "folder" / "p.log") as handler:
        handler.handle(_record("one"))
        assert _messages(handler.path) == ["one"]
        assert stat.S_IMODE(handler.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(handler.path.parent.stat().st_mode) == 0o700


def test_rotation_keeps_the_newest_records_and_loses_none_of_them(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    with _log(path, max_bytes=2_000, backups=3) as handler:
        for number in range(200):
            handler.handle(_record(f"record {number}"))
    old = [path.with_name(f"p.log.{number}") for number in (3, 2, 1)]
    assert all(file.stat().st_size <= 2_000 for file in (*old, path))
    assert not path.with_name("p.log.4").exists()
    kept = [message for file in (*old, path) for message in _messages(file)]
    assert kept == [f"record {number}" for number in range(200 - len(kept), 200)]
    assert len(kept) > 40
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in (*old, path))


def test_an_old_file_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    for text in ("before", "after"):
        with _log(path) as handler:
            handler.handle(_record(text))
    assert _messages(path) == ["before", "after"]


@pytest.mark.slow
def test_processes_that_share_a_file_lose_and_tear_nothing(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    program = (
        "import logging, sys; from pathlib import Path\n"
        "from pallas.telemetry.log.log_file import LogFileHandler\n"
        "handler = LogFileHandler(Path(sys.argv[1]), max_bytes=10_000, backups=50)\n"
        "for number in range(300):\n"
        "    text = f'{sys.argv[2]} {number}'\n"
        "    handler.handle(logging.LogRecord('t', 20, '', 1, text, (), None))\n"
    )
    runs = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in "abc"]
    try:
        assert [run.wait(60) for run in runs] == [0, 0, 0]
    finally:
        for run in runs:
            run.kill()
    files = [path, *(file for file in tmp_path.glob("p.log.*") if file.suffix != ".lock")]
    assert len(files) > 3
    kept = sorted(message for file in files for message in _messages(file))
    assert kept == sorted(f"{name} {number}" for name in "abc" for number in range(300))


def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    with _log(path) as handler:
        handler.handle(_record("one"))
        path.rename(tmp_path / "archived.log")
        handler.handle(_record("two"))
        path.unlink()
        handler.handle(_record("three"))
    assert _messages(tmp_path / "archived.log") == ["one"]
    assert _messages(path) == ["three"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_never_raises_and_is_told_later(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.log"
    path.symlink_to("/dev/full")
    with _log(path) as handler:
        handler.handle(_record("lost"))
        handler.handle(_record("lost too"))
        assert handler.failed == 2
        path.unlink()
        handler.handle(_record("kept"))
    assert _messages(path) == ["kept", "2 log records could not be written"]
    assert capfd.readouterr() == ("", "")


def test_a_line_that_was_cut_short_does_not_swallow_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.log"
    write = os.write
    with _log(path) as handler:
        # A disk that fills up in the middle of a line takes a part of it, and refuses the rest.
        room = [20]

        def fill(fd: int, data: bytes) -> int:
            if not room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(fd, data[: room.pop()])

        monkeypatch.setattr(os, "write", fill)
        handler.handle(_record("cut"))
        assert (handler.failed, handler.trouble) == (1, "No space left on device")
        monkeypatch.undo()
        handler.handle(_record("whole"))
    first, second, third = path.read_text().splitlines()
    assert len(first) == 20
    assert json.loads(second)["message"] == "whole"
    assert json.loads(third)["message"] == "1 log records could not be written"


def test_a_line_that_is_taken_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.log"
    write = os.write
    with _log(path) as handler:
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:20]))
        handler.handle(_record("one"))
        monkeypatch.undo()
        handler.handle(_record("two"))
        assert (handler.failed, handler.trouble) == (0, "")
    assert _messages(path) == ["one", "two"]


def test_a_rotation_that_fails_lets_the_file_grow(tmp_path: Path) -> None:
    path = tmp_path / "p.log"
    path.with_name("p.log.1").mkdir()
    (path.with_name("p.log.1") / "in the way").touch()
    path.with_name("p.log.2").touch()
    with _log(path, max_bytes=500, backups=2) as handler:
        for number in range(20):
            handler.handle(_record(f"record {number}"))
        assert handler.failed == 0
    assert _messages(path) == [f"record {number}" for number in range(20)]


def test_what_is_no_file_is_written_to_and_never_moved(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with _log(path, max_bytes=10) as handler:
            for _ in range(5):
                handler.handle(_record("through the pipe"))
            assert handler.failed == 0
        assert os.read(reader, 65_536).count(b"through the pipe") == 5
    finally:
        os.close(reader)
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_pipe_that_nobody_reads_is_an_error_and_no_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"):
        LogFileHandler(tmp_path / "pipe")
