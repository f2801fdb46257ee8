from pathlib import Path

from support.waiting import until

from pallas_tui.clipboard import copy, helper


class Screen:
    def __init__(self) -> None:
        self.text: str | None = None

    def copy_to_clipboard(self, text: str) -> None:
        self.text = text


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


async def test_the_terminal_gets_the_text_where_there_is_no_program() -> None:
    screen = Screen()
    assert await copy(screen, "one\ntwo", {"PATH": ""}) == "Copied 2 lines."
    assert screen.text == "one\ntwo"


async def test_the_program_of_the_desktop_gets_the_text_too(tmp_path: Path) -> None:
    program(tmp_path, "wl-copy", f'/bin/cat > "{tmp_path}/got"')
    environ = {"PATH": str(tmp_path), "WAYLAND_DISPLAY": "wayland-0", "TMUX": "x"}
    assert await copy(Screen(), "größe", environ) == "Copied 5 characters."
    assert (tmp_path / "got").read_text() == "größe"


async def test_a_program_that_hangs_or_fails_does_not_hold_the_screen(tmp_path: Path) -> None:
    program(tmp_path, "wl-copy", f'echo $$ > "{tmp_path}/pid"; exec /bin/sleep 600')
    assert (
        await copy(Screen(), "text", {"PATH": str(tmp_path), "WAYLAND_DISPLAY": "w"})
        == "Copied 4 characters."
    )
    pid = int((tmp_path / "pid").read_text())
    await until(lambda: _ended(pid))
    program(tmp_path, "wl-copy", "exit 3")
    assert await copy(Screen(), "x", {"PATH": str(tmp_path), "WAYLAND_DISPLAY": "w"}) == "Copied 1 character."


async def test_nothing_is_not_copied() -> None:
    screen = Screen()
    assert await copy(screen, "", {}) == "Nothing to copy."
    assert screen.text is None


async def test_escapes_do_not_reach_the_clipboard() -> None:
    screen = Screen()
    await copy(screen, "a\x1b[2Jb", {})
    assert screen.text == "a␛[2Jb"


def test_the_program_fits_the_desktop(tmp_path: Path) -> None:
    for name in ("pbcopy", "wl-copy", "xclip", "xsel", "tmux"):
        program(tmp_path, name, "true")
    path = str(tmp_path)

    def chosen(environ: dict[str, str], platform: str = "linux") -> str | None:
        command = helper({"PATH": path, **environ}, platform)
        return Path(command[0]).name if command else None

    assert chosen({}, "darwin") == "pbcopy"
    assert chosen({"WAYLAND_DISPLAY": "w", "DISPLAY": ":0"}) == "wl-copy"
    assert chosen({"DISPLAY": ":0"}) == "xclip"
    assert chosen({"TMUX": "/tmp/tmux"}) == "tmux"
    assert chosen({}) is None
    (tmp_path / "xclip").unlink()
    assert chosen({"DISPLAY": ":0"}) == "xsel"


def _ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"
