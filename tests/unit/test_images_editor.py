"""Which editor is opened, and what is told where there is none; the rest is in tests/pty."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.app import App, SuspendNotSupported

from pallas.model import Fault
from pallas_tui import editor
from pallas_tui.editor import edit, editor_command


def program(folder: Path, name: str, script: str = "true") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return path


class Screen(App[None]):
    """Steps aside, and notes it."""

    suspended = 0

    @contextmanager
    def suspend(self) -> Iterator[None]:
        self.suspended += 1
        yield


def test_visual_goes_before_editor_and_arguments_are_kept(tmp_path: Path) -> None:
    program(tmp_path, "code")
    program(tmp_path, "nano")
    path = str(tmp_path)
    assert editor_command({"PATH": path, "VISUAL": "code --wait -n 'a b'", "EDITOR": "nano"}) == [
        f"{path}/code", "--wait", "-n", "a b",
    ]  # fmt: skip
    assert editor_command({"PATH": path, "EDITOR": "nano"}) == [f"{path}/nano"]
    assert editor_command({"PATH": path, "VISUAL": " "}) == [f"{path}/nano"]
    assert editor_command({"PATH": path, "VISUAL": "code"}, "nano -w") == [f"{path}/nano", "-w"]
    with pytest.raises(Fault, match="the setting editor names gone"):
        editor_command({"PATH": path, "EDITOR": "nano"}, "gone")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, "set EDITOR to yours"),
        ({"EDITOR": "no-such-editor -x"}, "EDITOR names no-such-editor, which does not exist"),
        ({"VISUAL": "vim 'open"}, "VISUAL cannot be read as a command"),
        ({"EDITOR": "\x1b]52;c;eA==\x07"}, "␛]52"),
    ],
)
def test_what_is_wrong_is_told(environ: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(Fault, match=words.replace("[", r"\[").replace("]", r"\]")):
        editor_command({"PATH": str(tmp_path), **environ})


def test_the_text_goes_there_and_comes_back_sanitised(tmp_path: Path, capfd: Any) -> None:
    program(
        tmp_path,
        "ed",
        'cat "$2" > "$0.seen"; stat -c %a "$(dirname "$2")" > "$0.mode"; echo "$2" > "$0.path"; '
        r"printf 'new\n\033]52;c;eA==\007\xff\n' > " + '"$2"',
    )
    screen = Screen()
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "EDITOR": "ed --wait"}
    assert edit(screen, "old", environ) == "new\n␛]52;c;eA==\\x07\ufffd"
    assert screen.suspended == 1
    assert (tmp_path / "ed.seen").read_text() == "old"
    assert (tmp_path / "ed.mode").read_text() == "700\n"
    assert not Path((tmp_path / "ed.path").read_text().strip()).exists()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 3", "ed ended with status 3; the text is as it was before"),
        ("kill -9 $$", "ed ended with status -9"),
        ('rm "$1"', "ed cannot be used: No such file"),
    ],
)
def test_an_editor_that_fails_leaves_the_text(tmp_path: Path, script: str, words: str) -> None:
    program(tmp_path, "ed", script)
    with pytest.raises(Fault, match=words):
        edit(Screen(), "old", {"PATH": f"{tmp_path}:/usr/bin:/bin", "EDITOR": "ed"})


def test_more_than_an_agent_takes_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editor, "LIMIT", 1_000)
    program(tmp_path, "ed", 'head -c 100000 /dev/zero | tr "\\0" x > "$1"')
    with pytest.raises(Fault, match="more than the 1,000 characters"):
        edit(Screen(), "old", {"PATH": f"{tmp_path}:/usr/bin:/bin", "EDITOR": "ed"})


def test_where_there_is_no_terminal_it_is_told(tmp_path: Path) -> None:
    class Headless(App[None]):
        @contextmanager
        def suspend(self) -> Iterator[None]:
            raise SuspendNotSupported("not here")
            yield

    program(tmp_path, "ed")
    with pytest.raises(Fault, match="needs a terminal"):
        edit(Headless(), "old", {"PATH": f"{tmp_path}:/usr/bin:/bin", "EDITOR": "ed"})
