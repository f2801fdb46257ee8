"""The clipboard of the desktop: a picture, files, or text. A terminal never delivers a picture."""

import base64
import binascii
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pallas.processes.child_program import Ran, run
from pallas.safe_text import without_controls

from ..clipboard import is_remote, is_wsl
from .images import MAX_BYTES, pasted_images

TIMEOUT: Final = 3.0
"""Seconds for one program; PowerShell takes that long to start, and gets three times as much."""
TEXT_LIMIT: Final = 1_000_000

_KINDS: Final = ("image/png", "image/jpeg", "image/webp", "image/gif")
_TEXTS: Final = ("text/plain;charset=utf-8", "UTF8_STRING", "text/plain", "TEXT", "STRING")
_FILES: Final = "text/uri-list"
# A picture that is too big is still read to the end, so that its size can be reported.
_MOST: Final = 8 * MAX_BYTES

_POWERSHELL: Final = (
    "Add-Type -AssemblyName System.Windows.Forms;"
    "$i=[Windows.Forms.Clipboard]::GetImage();"
    "if($i){$m=New-Object IO.MemoryStream;"
    "$i.Save($m,[Drawing.Imaging.ImageFormat]::Png);[Convert]::ToBase64String($m.ToArray())}"
)
_HEX: Final = re.compile(rb"\xc2\xabdata PNGf([0-9A-Fa-f]+)\xc2\xbb|\xabdata PNGf([0-9A-Fa-f]+)\xbb")


@dataclass(frozen=True, slots=True)
class Pasted:
    """A picture, files or text; if none, ``problem`` says why and what to do."""

    picture: bytes = b""
    files: tuple[Path, ...] = ()
    text: str = ""
    problem: str = ""


async def paste(environ: Mapping[str, str] | None = None, platform: str = sys.platform) -> Pasted:
    """Read the clipboard: a picture first, files next, text last (without controls). Never raises.

    Takes at most 9 s, usually a few tens of milliseconds.
    """
    environ = os.environ if environ is None else environ

    def find(name: str) -> str | None:
        return shutil.which(name, path=environ.get("PATH"))

    if "WAYLAND_DISPLAY" in environ and (program := find("wl-paste")):
        return await _by_kind((program, "--list-types"), (program, "--no-newline", "--type"))
    if "DISPLAY" in environ and (program := find("xclip")):
        ask = (program, "-selection", "clipboard", "-o", "-t")
        return await _by_kind((*ask, "TARGETS"), ask)
    if platform == "darwin" and not is_remote(environ):
        return await _from_mac(find("pngpaste"), find("osascript"))
    if is_wsl(environ) and (program := find("powershell.exe")):
        command = (program, "-NoProfile", "-STA", "-Command", _POWERSHELL)
        return _decoded(await run(command, timeout=3 * TIMEOUT, limit=2 * _MOST))
    return Pasted(problem=_what_is_missing(environ))


async def _by_kind(list_kinds: tuple[str, ...], read: tuple[str, ...]) -> Pasted:
    """Read a clipboard that lists its kinds."""
    listed = await run(list_kinds, timeout=TIMEOUT, limit=64 * 1024)
    kinds = listed.output.decode("utf-8", "replace").split()
    if kind := next((kind for kind in _KINDS if kind in kinds), None):
        got = await run((*read, kind), timeout=TIMEOUT, limit=_MOST)
        return Pasted(got.output, problem=_problem_of(got))
    if _FILES in kinds:
        got = await run((*read, _FILES), timeout=TIMEOUT, limit=64 * 1024)
        if files := pasted_images(got.output.decode("utf-8", "replace")):
            return Pasted(files=files)
    if words := next((kind for kind in _TEXTS if kind in kinds), None):
        got = await run((*read, words), timeout=TIMEOUT, limit=4 * TEXT_LIMIT)
        text = without_controls(got.output.decode("utf-8", "replace"), TEXT_LIMIT)
        return Pasted(text=text, problem="" if text else _problem_of(got))
    if listed.problem and "status" not in listed.problem:  # both programs fail on an empty clipboard
        return Pasted(problem=_problem_of(listed))
    return Pasted(problem="There is no image and no text on the clipboard.")


async def _from_mac(pngpaste: str | None, osascript: str | None) -> Pasted:
    if pngpaste is not None:
        got = await run((pngpaste, "-"), timeout=TIMEOUT, limit=_MOST)
        if got.output and not got.problem:
            return Pasted(got.output)
    if osascript is not None:
        got = await run(
            (osascript, "-e", "get the clipboard as «class PNGf»"), timeout=TIMEOUT, limit=3 * _MOST
        )
        if found := _HEX.search(got.output):
            return Pasted(binascii.unhexlify(found[1] or found[2]))
    return Pasted(problem="There is no image on the clipboard.")


def _decoded(got: Ran) -> Pasted:
    try:
        picture = base64.b64decode(b"".join(got.output.split()), validate=True)
    except (binascii.Error, ValueError):
        picture = b""
    return Pasted(picture, problem="" if picture else "There is no image on the clipboard.")


def _problem_of(got: Ran) -> str:
    return f"The clipboard could not be read: {got.problem}." if got.problem else ""


def _what_is_missing(environ: Mapping[str, str]) -> str:
    instead = "Choose a file instead (alt+o), or give its path (ctrl+o)."
    if "WAYLAND_DISPLAY" in environ:
        return f"To paste an image install wl-clipboard (it brings wl-paste). {instead}"
    if "DISPLAY" in environ:
        return f"To paste an image install xclip. {instead}"
    if is_remote(environ):
        return f"Over ssh the clipboard of your machine cannot be read: copy the file here. {instead}"
    if is_wsl(environ):
        return f"To paste an image powershell.exe must be on PATH. {instead}"
    return f"There is no desktop here whose clipboard could be read. {instead}"
