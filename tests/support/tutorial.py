"""Follows a page of docs/: runs its commands, writes its files, and compares what commands print.

Of the blocks of a page, in their order:

- ``sh``: a command a line. ``cd`` and a fleet that runs until Ctrl-C (``pallas``, ``pallas dev``) are as in a
  terminal; the workbench is left out, the fleet below it is the same.
- ``text`` behind it: what the last command prints. The lines are in the output one after the other, with
  anything between them; ``…`` is any text. What has a test that failed is printed with exit status 1.
- ``keys``: what is done in the workbench that ``pallas`` opened, ``type TEXT`` or ``press KEY``, a line each;
  ``text`` behind it, or behind a file, is then on the screen.
- a block with ``title="FILE"`` is that file, with ``title="FILE, below TEXT"`` what is inserted below the
  line that begins with TEXT.

The ports of the page are those of the first project on a machine: here they are free ones.
"""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from . import pallas_process
from .fleet_desk import Desk, desk
from .notices import notices_of
from .ports import free_ports
from .shell import screen_text
from .waiting import until

_BLOCK: Final = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PAGE_PORT: Final = re.compile(r"\b24[23](\d\d)\b")
_ENDLESS: Final = re.compile(r"pallas( --serve| --watch| dev)*")
DEADLINE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    text: str


def _is_shown(here: Desk, lines: list[str]) -> bool:
    """Whether all of these lines are on the screen, or in a notice that was."""
    notices = "\n".join(each.message for each in notices_of(here.app))
    return all(line in notices or line in screen_text(here.app) for line in lines)


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page. The text before a file names it too: Markdown may be shown without titles."""
    found, end = [], 0
    for match in _BLOCK.finditer(page):
        title = match[2] or ""
        assert not title or f"`{title.partition(',')[0]}`" in page[end : match.start()], f"{title}: not named"
        found.append(Block(match[1], title, match[3]))
        end = match.end()
    assert len(found) * 2 == len(re.findall("^```", page, re.MULTILINE)), "a block that cannot be read"
    return found


class Tutorial:
    """A reader who does what the page says, in ``folder``.

    ``places`` are texts of the page, each with what stands for it here.
    """

    def __init__(self, folder: Path, places: dict[str, str] | None = None) -> None:
        self.folder = folder
        self._places = places or {}
        self._ports: dict[int, int] = {}
        self._fleet: subprocess.Popen[Any] | None = None

    def __enter__(self) -> "Tutorial":
        return self

    def __exit__(self, *_: object) -> None:
        if self._fleet is not None:
            self._fleet.terminate()
            self._fleet.communicate(timeout=DEADLINE)

    def follow(self, page: str) -> None:
        """Do all of it; AssertionError where something is not as the page says."""
        blocks = blocks_of(page)
        for block, following in zip(blocks, [*blocks[1:], Block("", "", "")], strict=True):
            text = self._here(block.text)
            if block.title:
                self._write(block.title, text)
            elif block.language == "sh":
                *lines, last = text.splitlines()
                for line in lines:
                    self._do(line)
                is_output = following.language == "text" and not following.title
                self._do(last, self._here(following.text) if is_output else "")
            else:
                assert block.language == "text", f"a block that is neither a file nor a command: {block}"

    async def follow_keys(self, page: str) -> None:
        """Do all of a page on the workbench, which ``pallas`` opens in it."""
        blocks = blocks_of(page)
        number = next(number for number, block in enumerate(blocks) if block.language == "keys")
        for line in self._here("".join(block.text for block in blocks[:number])).splitlines():
            if line != "pallas":
                await asyncio.to_thread(self._do, line)
        async with desk(self.folder, watch=True) as here:
            said = ""
            for block, following in zip(blocks[number:], [*blocks[number + 1 :], None], strict=True):
                if block.language == "keys":
                    for line in block.text.splitlines():
                        verb, _, what = line.partition(" ")
                        await here.press(*(what if verb == "type" else (what,)))
                elif block.title:
                    self._write(block.title, block.text)
                elif block.language == "sh":
                    said = following.text if following is not None else ""
                    await asyncio.to_thread(self._do, block.text.strip(), said)
                elif said:  # was looked at with its command
                    said = ""
                else:
                    try:
                        await here.until(partial(_is_shown, here, block.text.splitlines()))
                    except AssertionError as error:
                        raise AssertionError(f"{block.text}\n\n{screen_text(here.app)}") from error

    def _here(self, text: str) -> str:
        for theirs, ours in self._places.items():
            text = text.replace(theirs, ours)
        return _PAGE_PORT.sub(lambda port: str(self._port(int(port[1]))), text)

    def _port(self, offset: int) -> int:
        return self._ports.setdefault(offset, free_ports(1)[0])

    def _write(self, title: str, text: str) -> None:
        name, _, below = title.partition(", below ")
        path = self.folder / name
        if below:
            lines = path.read_text("utf-8").splitlines(keepends=True)
            (at, *_) = (index for index, line in enumerate(lines) if line.strip().startswith(below))
            text = "".join((*lines[: at + 1], text, *lines[at + 1 :]))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def _do(self, line: str, expected: str = "") -> None:
        """Run a command; beside a fleet, which may not have seen a saved file yet, until it says that."""
        words = shlex.split(line)
        if words[0] == "cd":
            self.folder /= words[1]
        elif _ENDLESS.fullmatch(line):
            self._serve(words[1:])
        else:
            wanted = ".*".join(map(re.escape, expected.strip().replace("…", "\n").splitlines()))

            def attempt() -> str:
                done = self._run(line, words)
                output = done.stdout + done.stderr
                status = 1 if "failed" in expected.lower() else 0
                assert done.returncode == status, f"{line}\n\n{output}"
                assert re.search(wanted, output, re.DOTALL), f"{line}\n{expected}\n\n{output}"
                return output or "nothing"

            if self._fleet is None:
                attempt()
            else:
                asyncio.run(until(attempt, timeout=DEADLINE))
            if words[:2] == ["pallas", "init"]:
                self._move_ports(self.folder / words[2])

    def _run(self, line: str, words: list[str]) -> subprocess.CompletedProcess[str]:
        options: dict[str, Any] = {
            "cwd": self.folder,
            "capture_output": True,
            "text": True,
            "timeout": DEADLINE,
        }
        if words[0] != "pallas" or ">" in words:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            return subprocess.run(["sh", "-c", line], env=os.environ | {"PATH": path}, check=False, **options)
        return pallas_process.run(*words[1:], **options)

    def _serve(self, arguments: list[str]) -> None:
        self._fleet = pallas_process.start(
            *arguments, "--serve", cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._do("pallas ready --wait 30")

    def _move_ports(self, root: Path) -> None:
        """Give a new project our ports in place of those that it chose."""
        agents = (root / "agents.yaml").read_text("utf-8")
        (first,) = map(int, re.findall(r"^registry_port: (\d+)$", agents, re.MULTILINE))
        ours = {str(first + offset): str(self._port(offset)) for offset in (0, 1, 9)}
        for name in ("agents.yaml", "fastagent.config.yaml"):
            text = (root / name).read_text("utf-8")
            (root / name).write_text(re.sub("|".join(ours), lambda port: ours[port[0]], text), "utf-8")
