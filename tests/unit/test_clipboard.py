import base64
from pathlib import Path

import pytest
from support.waiting import until

from pallas_tui.clipboard import LIMIT, OSC52_LIMIT, copy, helper, missing, wrapped_request


class Driver:
    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, data: str) -> None:
        self.written.append(data)


class Screen:
    """As much of an application as copying needs."""

    def __init__(self, *, is_web: bool = False) -> None:
        self.text: str | None = None
        self.is_web = is_web
        self.remembered = ""
        self._driver = Driver()

    def copy_to_clipboard(self, text: str) -> None:
        self.text = text

    def remember_copied(self, text: str) -> None:
        self.remembered = text


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


async def test_the_terminal_gets_the_text_where_there_is_no_program() -> None:
    screen = Screen()
    assert await copy(screen, "one\ntwo", {"PATH": ""}) == "Copied 2 lines through the terminal."
    assert screen.text == "one\ntwo"
    assert screen._driver.written == []


async def test_the_program_of_the_desktop_gets_the_text_too(tmp_path: Path) -> None:
    program(tmp_path, "wl-copy", f'/bin/cat > "{tmp_path}/got"')
    environ = {"PATH": str(tmp_path), "WAYLAND_DISPLAY": "wayland-0"}
    assert await copy(Screen(), "größe", environ) == "Copied 5 characters with wl-copy."
    assert (tmp_path / "got").read_text() == "größe"


async def test_a_program_that_hangs_or_fails_does_not_hold_the_screen(tmp_path: Path) -> None:
    program(tmp_path, "wl-copy", f'echo $$ > "{tmp_path}/pid"; exec /bin/sleep 600')
    environ = {"PATH": str(tmp_path), "WAYLAND_DISPLAY": "w"}
    assert (
        await copy(Screen(), "text", environ)
        == "Copied 4 characters through the terminal; wl-copy did not answer within 1 s."
    )
    pid = int((tmp_path / "pid").read_text())
    await until(lambda: _ended(pid))
    program(tmp_path, "wl-copy", "exit 3")
    assert (
        await copy(Screen(), "x", environ)
        == "Copied 1 character through the terminal; wl-copy failed with status 3."
    )


async def test_nothing_is_not_copied() -> None:
    screen = Screen()
    assert await copy(screen, "", {}) == "Nothing to copy."
    assert screen.text is None


async def test_escapes_do_not_reach_the_clipboard() -> None:
    screen = Screen()
    await copy(screen, "a\x1b[2Jb", {"PATH": ""})
    assert screen.text == "a␛[2Jb"


async def test_tmux_gets_the_plain_request_and_one_that_it_hands_on() -> None:
    screen = Screen()
    await copy(screen, "héllo", {"PATH": "", "TMUX": "/tmp/tmux-0/default,1,0"})
    assert screen.text == "héllo"
    (wrapped,) = screen._driver.written
    payload = base64.b64encode("héllo".encode()).decode()
    assert wrapped == f"\x1bPtmux;\x1b\x1b]52;c;{payload}\x07\x1b\\"


def test_screen_gets_pieces_that_it_takes() -> None:
    request = wrapped_request("x" * 2_000, {"STY": "1.pts"})
    pieces = [piece for piece in request.split("\x1bP") if piece]
    assert all(len(piece) <= 502 and piece.endswith("\x1b\\") for piece in pieces)
    joined = "".join(piece.removesuffix("\x1b\\") for piece in pieces)
    assert base64.b64decode(joined.removeprefix("\x1b]52;c;").removesuffix("\x07")) == b"x" * 2_000
    assert wrapped_request("x", {}) == ""


async def test_more_than_a_terminal_takes_is_told_with_what_would_mend_it(tmp_path: Path) -> None:
    screen = Screen()
    big = "x" * (OSC52_LIMIT + 1)
    told = await copy(screen, big, {"PATH": "", "DISPLAY": ":0"})
    assert "not copied" in told
    assert "neither xclip nor xsel is installed" in told
    assert screen.text is None
    assert screen._driver.written == []
    assert screen.remembered == big
    program(tmp_path, "xclip", f'/bin/cat > "{tmp_path}/got"')
    told = await copy(screen, big, {"PATH": str(tmp_path), "DISPLAY": ":0"})
    assert told == f"Copied {len(big)} characters with xclip."
    assert (tmp_path / "got").read_text() == big


async def test_what_is_beyond_the_limit_is_told(tmp_path: Path) -> None:
    program(tmp_path, "xclip", f'/bin/cat > "{tmp_path}/got"')
    told = await copy(Screen(), "y" * (LIMIT + 5), {"PATH": str(tmp_path), "DISPLAY": ":0"})
    assert "the first 1,000,000 of 1,000,005 characters" in told
    assert len((tmp_path / "got").read_text()) == LIMIT


async def test_in_a_browser_no_program_of_this_machine_is_asked(tmp_path: Path) -> None:
    program(tmp_path, "xclip", f'/bin/cat > "{tmp_path}/got"')
    screen = Screen(is_web=True)
    told = await copy(screen, "text", {"PATH": str(tmp_path), "DISPLAY": ":0", "TMUX": "x"})
    assert told == "Copied 4 characters through the terminal."
    assert not (tmp_path / "got").exists()
    assert screen._driver.written == []


@pytest.mark.parametrize(
    ("environ", "platform", "chosen"),
    [
        ({}, "darwin", "pbcopy"),
        ({"SSH_TTY": "/dev/pts/1"}, "darwin", None),
        ({"WAYLAND_DISPLAY": "w", "DISPLAY": ":0"}, "linux", "wl-copy"),
        ({"DISPLAY": ":0"}, "linux", "xclip"),
        ({"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "x"}, "linux", "xclip"),
        ({"WSL_DISTRO_NAME": "Debian"}, "linux", "clip.exe"),
        ({"TMUX": "/tmp/tmux"}, "linux", "tmux"),
        ({"SSH_CONNECTION": "x"}, "linux", None),
        ({}, "linux", None),
    ],
)
def test_the_program_fits_the_desktop(
    tmp_path: Path, environ: dict[str, str], platform: str, chosen: str | None
) -> None:
    for name in ("pbcopy", "wl-copy", "xclip", "xsel", "tmux", "clip.exe"):
        program(tmp_path, name, "true")
    command = helper({"PATH": str(tmp_path), **environ}, platform)
    assert (Path(command[0]).name if command else None) == chosen
    if chosen == "xclip":
        (tmp_path / "xclip").unlink()
        command = helper({"PATH": str(tmp_path), **environ}, platform)
        assert command is not None and Path(command[0]).name == "xsel"


def test_what_is_missing_is_named() -> None:
    assert missing({"WAYLAND_DISPLAY": "w"}) == "wl-clipboard is not installed"
    assert "over ssh" in missing({"SSH_TTY": "x"})
    assert "no desktop" in missing({}, "linux")


def _ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"
