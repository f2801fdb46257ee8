"""The watcher hears of what happens to real files, however often they and their folders come and go."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from support.waiting import until

from pallas.fleet.reload import file_state as contents_module
from pallas.fleet.reload import file_watcher as watching
from pallas.fleet.reload import folder_events as folder_events_module
from pallas.fleet.reload.file_state import FileFingerprints
from pallas.fleet.reload.file_watcher import FileWatcher
from pallas.fleet.reload.import_scan import command_files, module_paths, sources
from pallas.fleet.reload.watched_folders import folders_of, may_matter

POLLING = pytest.mark.parametrize("polling", [False, True], ids=["notified", "polled"])


class Ear:
    """A watcher, and what it told."""

    def __init__(self, root: Path, *, polling: bool = False) -> None:
        self.root = root
        self.paths: set[str] = set()
        self.missed = 0
        self.told: list[str] = []
        self.watcher = FileWatcher(
            root, self._hear, self._miss, lambda _, text: self.told.append(text), polling=polling
        )

    def _hear(self, paths: frozenset[Path]) -> None:
        self.paths |= {str(path.relative_to(self.root)) for path in paths if path.is_relative_to(self.root)}

    def _miss(self) -> None:
        self.missed += 1

    async def hears(self, *names: str) -> None:
        await until(lambda: set(names) <= self.paths)


@asynccontextmanager
async def listening(root: Path, *, polling: bool = False) -> AsyncIterator[Ear]:
    ear = Ear(root, polling=polling)
    task = asyncio.create_task(ear.watcher.run())
    try:
        await asyncio.wait_for(ear.watcher.ready.wait(), 30)
        yield ear
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def touch(root: Path, name: str, text: str = "x") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def replaced(path: Path) -> None:
    beside = path.with_name("beside")
    beside.write_text("new")
    beside.replace(path)


def again(path: Path) -> None:
    path.unlink()
    path.write_text("again")


@POLLING
@pytest.mark.parametrize(
    "save", [lambda path: path.write_text("longer than before"), replaced, again, Path.unlink]
)
async def test_every_way_to_save_a_file_is_heard(
    tmp_path: Path, polling: bool, save: Callable[[Path], object]
) -> None:
    file = touch(tmp_path, "agents/one.py")
    async with listening(tmp_path, polling=polling) as ear:
        save(file)
        await ear.hears("agents/one.py")


@POLLING
async def test_files_in_new_folders_are_heard_of_however_deep(tmp_path: Path, polling: bool) -> None:
    async with listening(tmp_path, polling=polling) as ear:
        file = touch(tmp_path, "a/b/c/d.py")
        await ear.hears("a/b/c/d.py")
        ear.paths.clear()
        file.write_text("another text")
        await ear.hears("a/b/c/d.py")
        (tmp_path / "a").rename(tmp_path / "z")
        await ear.hears("a")
        touch(tmp_path, "z/b/c/e.py")
        await ear.hears("z/b/c/e.py")


async def test_a_folder_that_is_there_again_is_followed_again(tmp_path: Path) -> None:
    touch(tmp_path, "agents/one.py")
    async with listening(tmp_path) as ear:
        (tmp_path / "agents" / "one.py").unlink()
        (tmp_path / "agents").rmdir()
        touch(tmp_path, "agents/one.py")
        await ear.hears("agents/one.py")
        ear.paths.clear()
        # Not heard before it is followed again; an editor may be that quick.
        await until(
            lambda: touch(tmp_path, "agents/one.py", os.urandom(8).hex()) and "agents/one.py" in ear.paths
        )


async def test_five_hundred_files_at_once_are_all_heard(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    async with listening(tmp_path) as ear:
        for number in range(500):
            touch(tmp_path, f"data/{number}.py")
        await ear.hears(*(f"data/{number}.py" for number in range(500)))


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems report changes in another way")


def most_events() -> int:
    """The events that the system keeps, and one more."""
    found = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if found > 200_000:
        pytest.skip("this system keeps too many")
    return found + 1


async def test_what_watchfiles_reports_is_heard_where_the_system_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "folder_events", folder_events_module._by_watchfiles)
    file = touch(tmp_path, "one.py")
    async with listening(tmp_path) as ear:
        touch(tmp_path, "agents/two.py")
        file.unlink()
        await ear.hears("one.py", "agents")


@LINUX
async def test_changes_that_the_system_has_lost_are_reported_as_missed(tmp_path: Path) -> None:
    files = touch(tmp_path, "one.py"), touch(tmp_path, "two.py")
    async with listening(tmp_path) as ear:
        before = ear.missed
        for number in range(most_events()):  # the loop has no time to hear of them
            files[number % 2].chmod(0o600)
        await until(lambda: ear.missed > before)
        assert ear.told == []
        ear.paths.clear()
        touch(tmp_path, "three.py")
        await ear.hears("three.py")


@LINUX
async def test_no_thread_waits_for_changes(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    async with listening(tmp_path) as ear:
        touch(tmp_path, "one.py")
        await ear.hears("one.py")
        waiting = [each.name for each in set(threading.enumerate()) - before]
        assert all(name.startswith("asyncio_") for name in waiting)  # which looked once


def not_utf8(folder: Path) -> Path:
    root = Path(os.fsdecode(os.fsencode(folder) + b"/pr\xffj"))
    try:
        root.mkdir()
    except OSError:
        pytest.skip("this file system takes only names in UTF-8")
    return root


async def test_a_folder_whose_name_is_not_utf8_is_followed_too(tmp_path: Path) -> None:
    root = not_utf8(tmp_path)
    async with listening(root) as ear:
        touch(root, "agents/one.py")
        await ear.hears("agents/one.py")
        assert ear.told == []


async def test_a_folder_elsewhere_is_looked_into_as_long_as_it_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "config").mkdir()
    heard: set[Path] = set()
    watcher = FileWatcher(tmp_path / "project", heard.update, lambda: None, lambda *_: None)
    task = asyncio.create_task(watcher.run())
    await watcher.ready.wait()
    watcher.also(frozenset({tmp_path / "config"}))
    name = "config/agents.yaml"
    await until(lambda: touch(tmp_path, name, os.urandom(8).hex()) in heard)
    task.cancel()
    await asyncio.wait({task})


async def test_when_it_fails_that_is_told_and_it_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = watching.folder_events, []

    def failing(folders: Iterable[str]) -> object:
        calls.append(folders)
        if len(calls) == 1:
            raise RuntimeError("no more")
        return real(folders)

    monkeypatch.setattr(watching, "folder_events", failing)
    async with listening(tmp_path) as ear:
        touch(tmp_path, "one.py")
        await ear.hears("one.py")
        assert ear.missed == 1  # by who listens from now on
        assert "could not be followed: RuntimeError" in ear.told[0]


async def test_what_one_watch_had_no_time_to_tell_is_told_when_the_next_one_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = watching.folder_events, []

    async def mute() -> AsyncIterator[object]:
        await asyncio.Event().wait()
        yield

    def slow(folders: Iterable[str]) -> object:
        calls.append(folders)
        return mute() if len(calls) == 1 else real(folders)

    monkeypatch.setattr(watching, "folder_events", slow)
    (tmp_path / "project").mkdir()
    (tmp_path / "config").mkdir()
    touch(tmp_path, "project/old.py")
    (tmp_path / "project" / ".#lock").symlink_to("nowhere")
    async with listening(tmp_path / "project") as ear:
        touch(tmp_path, "project/one.py")
        ear.watcher.also(frozenset({tmp_path / "config"}))
        await ear.hears("one.py")


async def test_where_the_system_has_no_room_for_it_files_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folders: Iterable[str]) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(watching, "folder_events", full)
    async with listening(tmp_path) as ear:
        touch(tmp_path, "one.py")
        await ear.hears("one.py")
        assert "looked at four times a second" in ear.told[0]


def test_folders_of_others_are_not_looked_into(tmp_path: Path) -> None:
    for name in (
        ".git/a",
        "node_modules/b",
        "env/pyvenv.cfg",
        "env/lib/c",
        "__pycache__/d",
        "agents/e",
        ".x/f",
    ):
        touch(tmp_path, name)
    found, many = folders_of(tmp_path)
    assert found == {str(tmp_path), str(tmp_path / "agents")}
    assert not many


@pytest.mark.parametrize(
    ("name", "matters"),
    [
        ("agents/one.py", True),
        (".env", True),
        ("cards/one.md", True),
        ("agents/.one.py.swp", False),
        ("agents/one.py~", False),
        ("agents/4913", False),
        ("agents/#one.py#", False),
        ("pallas.log", False),
        ("data/state.sqlite-wal", False),
        (".git/index", False),
        ("agents/__pycache__/one.pyc", False),
        ("agents/__pycache__", False),
        ("__pycache__", False),
        ("../elsewhere.py", False),
    ],
)
def test_what_editors_and_programs_leave_means_nothing(name: str, matters: bool) -> None:
    root = Path("/project")
    assert may_matter(Path(os.path.normpath(root / name)), root) is matters


def test_contents_tell_an_edit_from_a_touch(tmp_path: Path) -> None:
    file, gone = touch(tmp_path, "one.py"), tmp_path / "gone.py"
    contents = FileFingerprints()
    assert contents.different([file, gone]) == {file, gone}
    contents.note([file, gone])
    assert contents.different([file, gone]) == set()
    os.utime(file, (1, 1))
    assert contents.different([file]) == set()
    file.write_text("y")
    assert contents.different([file, gone]) == {file}
    gone.write_text("")
    assert contents.different([gone]) == {gone}
    contents.store(frozenset())
    assert contents.different([file]) == {file}


def test_what_changed_after_the_start_is_not_taken_for_what_was_read_then(tmp_path: Path) -> None:
    file = touch(tmp_path, "one.py")
    os.utime(file, (1, 1))  # put there with an older date, as a deployment does
    contents = FileFingerprints()
    assert contents.note_new([file], since=file.stat().st_ctime - 1) == {file}
    assert contents.different([file]) == {file}
    assert contents.note_new([file], since=file.stat().st_ctime + 1) == set()
    assert contents.different([file]) == set()


def test_what_is_written_while_it_is_looked_at_is_not_taken_for_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = touch(tmp_path, "one.py", "0")
    since = file.stat().st_ctime + 0.001

    def saving(real: Callable[[Path], object]) -> Callable[[Path], object]:
        def look(path: Path) -> object:
            found = real(path)
            while path.stat().st_ctime < since:  # somebody saves it after the first look, whatever that is
                path.write_text("1")
            return found

        return look

    for name in ("_mark", "changed_at"):
        monkeypatch.setattr(contents_module, name, saving(getattr(contents_module, name)))
    contents = FileFingerprints()
    assert contents.note_new([file], since) == {file}
    assert contents.different([file]) == {file}


def test_imports_are_followed_to_where_they_would_be(tmp_path: Path) -> None:
    one = touch(tmp_path, "agents/one.py", "import json\nfrom . import near\nfrom agents.far import X\n")
    touch(tmp_path, "agents/far.py", "def f():\n    import agents.late\n")
    found = sources([one], [tmp_path])
    for name in (
        "agents/near.py",
        "agents/far.py",
        "agents/late.py",
        "agents/late/__init__.py",
        "agents/__init__.py",
    ):
        assert tmp_path / name in found
    touch(tmp_path, "agents/one.py", "not python (")
    assert sources([one], [tmp_path]) == {one}
    assert module_paths(tmp_path, "a.b") == (
        tmp_path / "a/__init__.py",
        tmp_path / "a/b/__init__.py",
        tmp_path / "a/b.py",
    )


@pytest.mark.parametrize(
    ("command", "cwd", "expected"),
    [
        (("python", "servers/docs.py", "--port", "1"), ".", {"servers/docs.py", "servers/word.py"}),
        (("python", "docs.py"), "servers", {"servers/docs.py", "servers/word.py"}),
        (("python", "-m", "servers.docs"), ".", {"servers/docs.py"}),
        (("./run.sh",), ".", {"run.sh"}),
        (("uvx", "some-server"), ".", set()),
    ],
)
def test_the_files_that_a_command_runs(
    tmp_path: Path, command: tuple[str, ...], cwd: str, expected: set[str]
) -> None:
    touch(tmp_path, "servers/docs.py", "from word import WORD\n")
    touch(tmp_path, "servers/word.py", "WORD = 1\n")
    touch(tmp_path, "run.sh", "exit\n")
    found = command_files(command, tmp_path / cwd, tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in found if path.is_file()} == expected
