"""Reading the clipboard, with small scripts in place of the programs of a desktop."""

import base64
from pathlib import Path

import pytest
from support.pictures import picture

from pallas_tui.pictures import paste as module
from pallas_tui.pictures.images import MAX_BYTES
from pallas_tui.pictures.paste import paste

PNG = picture()


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "picture.png").write_bytes(PNG)
    return tmp_path


def xclip(folder: Path, targets: str, body: str) -> dict[str, str]:
    """A clipboard of X that has those kinds; ``body`` prints the one in ``$kind``."""
    program(
        folder,
        "xclip",
        f'kind="${{@: -1}}"; if [ "$kind" = TARGETS ]; then printf "{targets}"; else {body}; fi',
    )
    return {"PATH": f"{folder}:/usr/bin:/bin", "DISPLAY": ":0"}


async def test_a_picture_is_read_before_anything_else(folder: Path) -> None:
    environ = xclip(
        folder,
        r"TARGETS\nUTF8_STRING\nimage/jpeg\nimage/png\n",
        f'[ "$kind" = image/png ] && cat "{folder}/picture.png"',
    )
    pasted = await paste(environ)
    assert pasted.picture == PNG
    assert pasted.problem == ""


async def test_wayland_is_asked_in_its_own_way(folder: Path) -> None:
    program(
        folder,
        "wl-paste",
        'if [ "$1" = --list-types ]; then echo image/webp; '
        f'elif [ "$*" = "--no-newline --type image/webp" ]; then cat "{folder}/picture.png"; fi',
    )
    pasted = await paste({"PATH": f"{folder}:/usr/bin:/bin", "WAYLAND_DISPLAY": "w", "DISPLAY": ":0"})
    assert pasted.picture == PNG


async def test_copied_files_are_taken_when_they_are_images(folder: Path) -> None:
    environ = xclip(
        folder, r"TARGETS\ntext/uri-list\nUTF8_STRING\n", f'printf "file://{folder}/picture.png\\r\\n"'
    )
    assert (await paste(environ)).files == (folder / "picture.png",)


async def test_text_is_read_last_and_sanitised(folder: Path) -> None:
    environ = xclip(folder, r"TARGETS\nUTF8_STRING\n", r"printf 'one\ntwo \033]52;c;eA==\007'")
    assert (await paste(environ)).text == "one\ntwo ␛]52;c;eA==\\x07"


async def test_an_empty_clipboard_is_told(folder: Path) -> None:
    environ = xclip(folder, r"TARGETS\n", "exit 1")
    assert (await paste(environ)).problem == "There is no image and no text on the clipboard."
    program(folder, "xclip", "exit 1")
    assert (await paste(environ)).problem == "There is no image and no text on the clipboard."


async def test_a_program_that_hangs_or_floods_is_told_and_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.3)
    environ = xclip(folder, r"image/png\n", "sleep 600")
    assert "did not answer within 0.3 s" in (await paste(environ)).problem
    monkeypatch.setattr(module, "TIMEOUT", 20.0)
    environ = xclip(folder, r"image/png\n", "exec cat /dev/zero")
    assert f"more than {8 * MAX_BYTES:,} bytes" in (await paste(environ)).problem


async def test_a_mac_without_pngpaste_uses_its_own_script(folder: Path) -> None:
    program(folder, "osascript", f"printf '«data PNGf{PNG.hex().upper()}»'")
    assert (await paste({"PATH": f"{folder}:/usr/bin:/bin"}, "darwin")).picture == PNG
    program(folder, "pngpaste", f'cat "{folder}/picture.png"')
    (folder / "osascript").unlink()
    assert (await paste({"PATH": f"{folder}:/usr/bin:/bin"}, "darwin")).picture == PNG
    program(folder, "pngpaste", "echo 'pngpaste: No image data found' >&2; exit 1")
    assert "no image" in (await paste({"PATH": f"{folder}:/usr/bin:/bin"}, "darwin")).problem


async def test_windows_is_asked_through_powershell(folder: Path) -> None:
    encoded = base64.encodebytes(PNG).decode().replace("\n", "\r\n")
    program(folder, "powershell.exe", f"printf '%s' '{encoded}'")
    environ = {"PATH": f"{folder}:/usr/bin:/bin", "WSL_DISTRO_NAME": "Debian"}
    assert (await paste(environ)).picture == PNG
    program(folder, "powershell.exe", "echo 'Exception: no STA'")
    assert "no image" in (await paste(environ)).problem


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"WAYLAND_DISPLAY": "w"}, "install wl-clipboard"),
        ({"DISPLAY": ":0"}, "install xclip"),
        ({"SSH_CONNECTION": "x"}, "Over ssh"),
        ({"WSL_INTEROP": "x"}, "powershell.exe"),
        ({}, "no desktop"),
    ],
)
async def test_what_is_missing_is_said_with_what_works_instead(environ: dict[str, str], words: str) -> None:
    pasted = await paste({"PATH": "", **environ}, "linux")
    assert words in pasted.problem
    assert "alt+o" in pasted.problem
