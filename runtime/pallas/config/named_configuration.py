"""The configuration of fast-agent that modules name (``FastAgent("name", config_path=...)``)."""

import ast
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from .agent_code import is_fast_agent, parsed
from .files import absolute, file_like, is_file, is_folder, shown
from .models import AgentConfig, Where
from .notes import Notes, suggest
from .project_imports import find_imports

_MAX_KEPT: Final = 1_024
_MAX_STEPS: Final = 50
_SAME: Final = frozenset(
    {"Path", "str", "fspath", "abspath", "realpath", "resolve", "absolute", "as_posix", "expanduser"}
)
"""What gives a path that names the same file."""


@dataclass(frozen=True, slots=True)
class NamedConfiguration:
    """``file`` is the project's configuration, None for the usual one; ``others`` are those of other agents.

    ``missing`` when the file is not there: fast-agent reads none then.
    """

    file: Path | None = None
    others: tuple[Path, ...] = ()
    missing: bool = False


@dataclass(frozen=True, slots=True)
class _Named:
    path: str
    is_home: bool
    line: int
    column: int


def named_configuration(
    root: Path, usual: Path | None, agents: Iterable[AgentConfig], notes: Notes
) -> NamedConfiguration:
    """Return which files the agents' code names; one that is not there, and several, are noted. Blocks.

    ``usual`` is the file that agents read whose code names none.
    """
    read: dict[str, Path | None] = {}
    places: dict[Path, tuple[Where, str]] = {}
    lost = False
    for config in agents:
        if config.kind != "llm":
            continue
        named = next(_named_by(root, config), None)
        read[config.name] = usual
        if named is None or (path := _found(root, named[1])) is None:
            continue
        where = Where(shown(root, named[0]), named[1].line, named[1].column)
        key = f"agents.{config.name}.module"
        if not is_file(path):
            problem = f"config_path names {shown(root, path)}, and there is no such file"
            notes.warn(where, key, problem, "fast-agent reads none then", suggest(file_like(root, path)))
            read[config.name], lost = None, True
            continue
        read[config.name] = path
        places.setdefault(path, (where, key))
    files = {each for each in read.values() if each is not None}
    if len(files) < 2 and None not in read.values():
        return NamedConfiguration(next(iter(files), None))
    if not files:
        return NamedConfiguration(missing=lost)
    first = usual if usual in files else next(each for each in read.values() if each is not None)
    for path in files - {first}:
        others = [name for name, each in read.items() if each == first]
        if path in places:
            problem = f"reads {shown(root, path)}, and {', '.join(others)} reads {shown(root, first)}"
            hint = f"what both have, health, keys and `check` take from {shown(root, first)}"
            notes.warn(*places[path], problem, f"name one file in both: {hint}")
    return NamedConfiguration(first, tuple(sorted(files - {first})))


def _named_by(root: Path, config: AgentConfig) -> Iterator[tuple[Path, _Named]]:
    """Yield what the module of an agent, or one that it imports, names."""
    for path in find_imports(root, config.module).files if config.module else ():
        try:
            found = path.stat()
        except OSError:
            continue
        named = _in_file(path, root, (found.st_ino, found.st_mtime_ns, found.st_size))
        if named is not None:
            yield path, named


@lru_cache(_MAX_KEPT)
def _in_file(path: Path, root: Path, version: tuple[int, ...]) -> _Named | None:
    """Return what the first FastAgent of a file is made with, read once for each ``version``."""
    if (tree := parsed(path)) is None:
        return None
    constants = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not is_fast_agent(node.func):
            continue
        given = {each.arg: each.value for each in node.keywords}
        if len(node.args) > 1:
            given["config_path"] = node.args[1]
        for key in ("config_path", "home"):
            if text := _Evaluation(path, root, constants).path(given.get(key)):
                return _Named(text, key == "home", node.lineno, node.col_offset + 1)
    return None


def _found(root: Path, named: _Named) -> Path | None:
    """Return the file, as fast-agent finds it from the project's folder; None for a home without one."""
    from .fastagent import CONFIG_NAMES

    path = root / Path(named.path).expanduser() if named.is_home else root / named.path
    if named.is_home:
        found = (path / name for name in CONFIG_NAMES) if is_folder(path) else ()
        return next((absolute(each) for each in found if is_file(each)), None)
    if not is_file(path) and is_file(root / path.name):
        path = root / path.name
    return Path(os.path.normpath(path))


@dataclass
class _Evaluation:
    """A path that is written out in the code of ``file``: texts, names of them, ``__file__`` and joins."""

    file: Path
    root: Path
    constants: Mapping[str, ast.expr]
    steps: int = 0

    def path(self, node: ast.expr | None) -> str | None:
        """Return the path, None if the text does not say it."""
        self.steps += 1
        if self.steps > _MAX_STEPS:
            return None
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id="__file__"):
                return str(self.file)
            case ast.Name(id=name):
                return self.path(self.constants.get(name))
            case ast.Attribute(value=inner, attr="parent"):
                return _parent(self.path(inner))
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._joined((left, right), os.sep)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._joined((left, right), "")
            case ast.JoinedStr(values=values):
                return self._joined(values, "")
            case ast.FormattedValue(value=inner, conversion=-1, format_spec=None):
                return self.path(inner)
            case ast.Call():
                return self._called(node)
        return None

    def _called(self, node: ast.Call) -> str | None:
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[inner]) if name in _SAME:
                return self.path(inner)
            case ast.Call(func=ast.Attribute(value=inner, attr=name), args=[]) if name in _SAME:
                return self.path(inner)
            case ast.Call(func=ast.Attribute(attr="cwd" | "getcwd"), args=[]):
                return str(self.root)
            case ast.Call(func=ast.Name(id="dirname") | ast.Attribute(attr="dirname"), args=[inner]):
                return _parent(self.path(inner))
            case ast.Call(func=ast.Name(id="join") | ast.Attribute(attr="join"), args=parts):
                return self._joined(parts, os.sep)
            case ast.Call(func=ast.Attribute(value=inner, attr="joinpath"), args=parts):
                return self._joined((inner, *parts), os.sep)
        return None

    def _joined(self, nodes: Iterable[ast.expr], separator: str) -> str | None:
        parts = [self.path(each) for each in nodes]
        if not parts or None in parts:
            return None
        texts = [each for each in parts if each is not None]
        return str(Path(*texts)) if separator else "".join(texts)


def _parent(path: str | None) -> str | None:
    return str(Path(path).parent) if path is not None else None
