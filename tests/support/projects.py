"""The sample project, copied to where a test may run it."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from .live import STDIO_SERVER
from .ports import free_ports

SAMPLE: Final = Path(__file__).resolve().parents[2] / "sample_project"
# The range its files take their ports from; nothing else in them has five digits like these.
_PORT: Final = re.compile(r"\b242\d\d\b")
_PAUSE: Final = re.compile(r"^(delay|pace): .*$", re.MULTILINE)
_IDLE_SERVER: Final = f"""{STDIO_SERVER}

def nothing() -> str:
    "Do nothing."
    return ""


server = StdioServer("idle")
server.add_tool(nothing)
server.run()
"""
_SKIPPED: Final = ("__pycache__", ".fast-agent", ".env", "*.secrets.yaml")


def copy_sample(tmp_path: Path, *, hurry: bool = False, tools: bool = True) -> Path:
    """The sample project below ``tmp_path``, each of its ports replaced by one that is free.

    A port is replaced by the same one in every file. What a developer keeps beside the project (keys, a
    real model's settings) is not copied. ``hurry`` takes the pauses out of its script.
    Without ``tools`` its servers have one that does nothing, and start in a tenth of the time: they import no
    SDK.
    """
    root = tmp_path / "sample_project"
    shutil.copytree(SAMPLE, root, ignore=shutil.ignore_patterns(*_SKIPPED))
    texts = {path: text for path in root.rglob("*") if path.is_file() and (text := _text(path)) is not None}
    ports = sorted({port for text in texts.values() for port in _PORT.findall(text)})
    free = dict(zip(ports, map(str, free_ports(len(ports))), strict=True))
    for path, text in texts.items():
        path.write_text(_PORT.sub(lambda found: free[found[0]], text), "utf-8")
    if hurry:
        script = root / "model.yaml"
        script.write_text(_PAUSE.sub(r"\1: 0", script.read_text("utf-8")), "utf-8")
    if not tools:
        _take_tools_away(root)
    return root


def _take_tools_away(root: Path) -> None:
    """Put an idle server over stdio in place of each of its own, the one over HTTP too."""
    topology = yaml.safe_load((root / "agents.yaml").read_text("utf-8"))
    settings = yaml.safe_load((root / "fastagent.config.yaml").read_text("utf-8"))
    for name in topology.pop("servers"):
        settings["mcp"]["servers"][name] = {"command": "python", "args": [f"servers/{name}.py"]}
    (root / "agents.yaml").write_text(yaml.safe_dump(topology, sort_keys=False), "utf-8")
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")
    for server in (root / "servers").glob("*.py"):
        server.write_text(_IDLE_SERVER, "utf-8")


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:  # a picture
        return None


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text of a file, which has it.

    Its time is another second: Python takes a compiled file for current by whole seconds and size.
    """
    text, before = path.read_text("utf-8"), path.stat().st_mtime
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    if int(path.stat().st_mtime) == int(before):
        os.utime(path, (before + 1, before + 1))


@contextmanager
def edited(path: Path, old: str, new: str) -> Iterator[None]:
    """A file with one of its texts replaced, until the block ends."""
    text = path.read_text("utf-8")
    edit(path, old, new)
    try:
        yield
    finally:
        path.write_text(text, "utf-8")
