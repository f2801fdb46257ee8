"""Hostile text in a real terminal: every byte that the workbench writes is looked at."""

import asyncio
import base64
import json
import re
import sys
from pathlib import Path

import pytest
from support import echo_agent
from support.echo_agent import EchoAgent
from support.hostile import HOSTILE, LONG, MARK, stray
from support.live import write_project
from support.pictures import picture
from support.registries import FakeRegistry, entry
from support.terminal import needs_tmux, terminal

from pallas.safe_text import without_controls

pytestmark = [needs_tmux, pytest.mark.pty]

_COPIED = re.compile(r"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07")
_WRAPPED = re.compile(r"\x1bPtmux;(.*?)(?<!\x1b)\x1b\\", re.DOTALL)


def clipboard_of(written: str) -> tuple[str, list[str]]:
    """What was written without the requests to the clipboard, and the texts in those."""
    plain = _WRAPPED.sub(lambda found: found[1].replace("\x1b\x1b", "\x1b"), written)
    texts = [base64.b64decode(found[1]).decode() for found in _COPIED.finditer(plain)]
    return _COPIED.sub("", plain), texts


def noise(path: Path) -> None:
    """A log that was there before, with everything in it that a log can have."""
    record = {"time": "2026-01-01T00:00:00.000Z", "level": "ERROR", "logger": HOSTILE, "message": HOSTILE}
    lines = [
        json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        json.dumps({**record, "message": LONG}).encode(),
        b"raw \x9b2J\x1b[2J\x1b]52;c;cm0=\x07\xff\x00",
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")


@pytest.mark.slow
async def test_every_byte_to_the_terminal_is_the_workbench_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(echo_agent, "HOSTILE", HOSTILE)
    log, seen = tmp_path / "pallas.log", tmp_path / "seen"
    noise(log)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / f"{MARK}\x1b]52;c;cm0=\x07\u202e.png").write_bytes(picture())
    environment = {
        "PALLAS_LOG_FILE": str(log),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "DAEDALUS_MCP_HEALTH_INTERVAL": "1",
    }
    project = write_project(tmp_path / "project", {"concierge": None})
    command = f"{sys.executable} -m pallas.server dev {project}; echo left=$?"
    elsewhere = EchoAgent("elsewhere")
    elsewhere.health = {"status": "degraded", "message": f"half {HOSTILE}"}
    names = {"title": f"El {HOSTILE}", "description": HOSTILE}
    registry = FakeRegistry([entry("ns/elsewhere", elsewhere.url, **names)])
    async with elsewhere, registry.serving() as origin:

        def drive() -> None:
            with terminal(command, cwd=pictures, environment=environment) as desk:
                desk.until("Write to concierge")
                # From now on; what the shell wrote before is not ours.
                desk.tmux("pipe-pane", "-o", f"exec cat > '{seen}'")
                desk.keys("F5")
                desk.until("4 Logs", "lines")
                desk.type("a")  # what is in the file names no fleet
                desk.keys("Home")
                desk.until(MARK)
                desk.keys("Enter")
                desk.keys("Escape", "Escape")
                desk.keys("F10")
                desk.until("No instance is registered")
                desk.keys("a")
                desk.until("URL of a registry, for example")
                desk.type(origin)
                desk.keys("Enter")
                desk.until("not attached", f"El {MARK}")
                desk.keys("Enter")
                desk.until("degraded")
                desk.keys("Down")
                desk.until(f"half {MARK}")
                desk.keys("Enter")
                desk.until("Write to elsewhere@")
                desk.type("hostile")
                desk.keys("Enter")
                desk.until(f"{MARK}[@click=app.quit]quit", "1 tool call")
                desk.keys("Escape")
                desk.until("12345 panes")  # an escape with a letter right behind it is another key
                desk.type("y")
                desk.until("Copied")
                desk.keys("M-o")
                desk.until(f"{MARK}␛]52")
                desk.keys("Enter")
                desk.until("Write to elsewhere@")
                desk.keys("F2")
                desk.resize(60, 20)
                desk.keys("F3")
                desk.until("Write to elsewhere@")
                desk.keys("C-q")
                desk.until("left=0")

        await asyncio.to_thread(drive)
    # Strict: a byte of 0x80 to 0x9f on its own would be a control character to some terminals.
    written = seen.read_bytes().decode("utf-8")
    written, copied = clipboard_of(written.partition("left=0")[0])
    assert len(written) > 10_000
    assert stray(written, bells=1) == []  # an agent that breaks is told with one
    assert copied
    for text in copied:
        assert text == without_controls(text)
