"""What a version of an agent does, as digests: comments and the layout of its files do not count.

A digest is empty where what an agent does is not known from its files and its configuration alone.
"""

import ast
import json
import re
import sys
import warnings
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from pallas.config import AgentConfig, Project
from pallas.config.delegation import leads_to
from pallas.config.where import Where
from pallas.model.redaction import redact_text

from .source_files import SourceFile, SourceFiles

_LIBRARIES: Final = (
    *("pallas-mcp", "fast-agent-mcp", "fastmcp", "mcp", "pydantic", "genai-prices"),
    *("anthropic", "google-genai", "openai"),
)
"""What requests, calls and prices also depend on."""
_OUTSIDE: Final = re.compile(r"environ|getenv|BaseSettings|dotenv|getsource|getcomments|linecache|\{\{url:")
"""Words of code or of an instruction that depends on more than the files and the configuration."""
_NOT_ITS_OWN: Final = frozenset(
    {"auth", "icons", "max_instances", "needs", "port", "restart", "shadows", "start_timeout", "where"}
)
"""Keys of an agent that change nothing in a run."""
_OF_ALL: Final = (
    *("approvals", "capabilities", "limits", "llm", "messages", "model", "plugins", "prices", "provider"),
    *("tools", "tools_lock", "trusted_servers", "unfinished_calls"),
)
"""Keys of the project that may change any run."""
_SEEN: Final = ("kind", "title", "description", "capabilities", "examples")
"""Keys of an agent that its callers and routers see."""
_LOCK: Final = "tools.lock"
_MOST_TREES: Final = 5_000

_trees: dict[bytes, str] = {}
"""The digests of syntax trees, by that of the file."""


def code_digest(sources: SourceFiles, paths: Collection[Path], root: Path) -> str:
    """The SHA-256 of the lines ``DIGEST  PATH`` of these files, with syntax trees of those in Python.

    Empty if one of them is not certain, too large to be looked at, or depends on what is outside. Blocks.
    """
    known = {path: source for path in paths if (source := sources.files.get(path)) is not None}
    if not known or len(known) < len(paths) or not all(each.certain for each in known.values()):
        return ""
    if any(each.text is None or _OUTSIDE.search(each.text) for each in known.values()):
        return ""
    lines = sorted(
        f"{path.relative_to(root) if path.is_relative_to(root) else path}  {_digest_of(path, source)}\n"
        for path, source in known.items()
        if source.digest
    )
    return sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def settings_digest(project: Project, config: AgentConfig, servers: Collection[str]) -> str:
    """The SHA-256 of all configuration that a run of an agent depends on, without secrets. Blocks.

    ``servers`` are the names of its downstreams. Empty for an agent that calls a typed handler: the code of
    that says what its tool looks like.
    """
    urls = [each.url for name, each in project.downstreams.items() if each.url and name in servers]
    if any(_is_called(project, config, other, urls) for other in project.agents.values()):
        return ""
    settings = {key: value for key, value in project.settings.items() if key != "mcp"}
    mcp = project.settings.get("mcp")
    if isinstance(mcp, Mapping):
        settings["mcp"] = {key: value for key, value in mcp.items() if key != "servers"}
    made_of = {
        "libraries": _libraries(),
        "agent": {
            each.name: getattr(config, each.name)
            for each in fields(config)
            if each.repr and each.name not in _NOT_ITS_OWN
        },
        "variables": sorted(config.env),
        "project": {key: getattr(project, key) for key in _OF_ALL},
        "others": {
            name: [getattr(other, key) for key in _SEEN] for name, other in sorted(project.agents.items())
        },
        "settings": settings,
        "servers": {name: each.written for name, each in sorted(project.downstreams.items())},
        "lock": _lock(project),
    }
    text = json.dumps(_canonical(made_of, project.root), sort_keys=True, default=repr)
    return sha256(redact_text(text).encode("utf-8", "surrogateescape")).hexdigest()


def _is_called(project: Project, config: AgentConfig, other: AgentConfig, urls: Collection[str]) -> bool:
    """Whether ``other`` is a typed handler that an agent has a tool for."""
    if other.typed is None or other.name == config.name:
        return False
    return other.name in config.peers or any(leads_to(url, other.name, project) for url in urls)


def _digest_of(path: Path, source: SourceFile) -> str:
    """Of the syntax tree of a Python file, docstrings included; of the bytes of any other."""
    if path.suffix != ".py" or source.text is None:
        return source.digest.hex()
    if source.digest not in _trees:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.dump(ast.parse(source.text))
            found = sha256(tree.encode("utf-8", "surrogatepass")).hexdigest()
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            found = source.digest.hex()
        while len(_trees) >= _MOST_TREES:
            _trees.pop(next(iter(_trees)), None)
        _trees[source.digest] = found
    return _trees.get(source.digest, source.digest.hex())


@cache
def _libraries() -> tuple[str, ...]:
    found = [f"python {sys.version_info.major}.{sys.version_info.minor}"]
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return tuple(found)


def _lock(project: Project) -> str:
    try:
        return sha256((project.root / _LOCK).read_bytes()).hexdigest()
    except OSError:
        return ""


def _canonical(value: Any, root: Path) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        # Without values that may hold a secret, and without places: a line above moves those.
        named = {each.name: getattr(value, each.name) for each in fields(value) if each.repr}
        return {name: _canonical(each, root) for name, each in named.items() if not isinstance(each, Where)}
    if isinstance(value, Mapping):
        return {str(key): _canonical(each, root) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_canonical(each, root) for each in value]
    if isinstance(value, frozenset | set):
        return sorted((_canonical(each, root) for each in value), key=repr)
    if isinstance(value, Path):
        return str(value.relative_to(root) if value.is_relative_to(root) else value)
    return value.value if isinstance(value, Enum) else value
