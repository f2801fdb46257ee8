"""One agent without a project: a card or a module in a folder without agents.yaml.

The agents.yaml that it needs is written into the state directory, never next to the user's file. The ledger
and the log are there too.
"""

import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Final

from platformdirs.unix import Unix

from pallas.config.fastagent import CONFIG_NAMES, HOME
from pallas.config.files import module_problem
from pallas.config.load import AGENTS_FILE, AGENTS_VARIABLE
from pallas.config.yamlfile import literal

from .project_ports import NoPorts, choose_ports

_KINDS: Final = {".md": "card", ".yaml": "card", ".yml": "card", ".py": "module"}
_UNFIT: Final = re.compile(r"[^a-z0-9._-]+")
_LEVELS: Final = 3


class NotSingle(Exception):
    """The file cannot be run as one agent; the message says why and what to do."""


def is_agent_file(text: str) -> bool:
    """Whether this names a file that may be an agent, and no agents.yaml."""
    path = Path(text)
    return path.suffix in _KINDS and path.name != AGENTS_FILE and path.is_file()


def root_of(path: Path) -> Path:
    """Return the project's folder for what a user named: itself, its agents.yaml, or a single agent's file.

    Raises NotSingle.
    """
    if is_agent_file(str(path)):
        return single(path)[0]
    return path.parent if path.name == AGENTS_FILE and path.is_file() else path


def single(path: Path) -> tuple[Path, str]:
    """Make a project of one agent of the file; returns its folder, and the agent's name.

    From now on this process and its children read that agents.yaml, and compile nothing into the folder. The
    folder is the nearest one with a fast-agent configuration, at most three levels up, else the file's own.
    Raises NotSingle.
    """
    path = path.absolute()
    root = _root_above(path)
    within, kind = path.relative_to(root), _KINDS[path.suffix]
    source = str(within) if kind == "card" else ".".join(within.with_suffix("").parts)
    if kind == "module" and (problem := module_problem(source)):
        raise NotSingle(f"{path.name}: {source} {problem}")
    name = (_UNFIT.sub("-", path.stem.lower()).strip("-._") or "agent")[:60]
    tag = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    agents = Unix("pallas", appauthor=False).user_state_path / "single" / f"{name}-{tag}" / AGENTS_FILE
    try:
        agents.parent.mkdir(parents=True, exist_ok=True)
        port = choose_ports(agents.parent, lambda port: _runs(root, port))
        # A file named ${SECRET}.md is no reference to a variable.
        entry = {kind: literal(source)}
        document = {"name": literal(path.name[:100]), "port": port, "agents": {name: entry}}
        text = f"# {path.name!r} alone. Written again at each start.\n{json.dumps(document, indent=2)}\n"
        if not agents.exists() or agents.read_text("utf-8") != text:  # a running fleet watches it
            agents.write_text(text, "utf-8")
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}; set XDG_STATE_HOME"
        raise NotSingle(f"{agents}: {problem}") from None
    except NoPorts as error:
        raise NotSingle(str(error)) from None
    os.environ[AGENTS_VARIABLE] = str(agents)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    return root, name


def _root_above(path: Path) -> Path:
    folders = [path.parent, *path.parent.parents][: _LEVELS + 1]
    configured = (
        each
        for each in folders
        if any((each / place / name).is_file() for place in ("", HOME) for name in CONFIG_NAMES)
    )
    return next(configured, folders[0])


def _runs(root: Path, port: int) -> bool:
    """Whether a fleet of that folder answers at the port."""
    import asyncio

    from pallas.client import FleetAddress
    from pallas.client.own_fleet import is_there

    return asyncio.run(is_there(FleetAddress(f"http://127.0.0.1:{port}", root)))
