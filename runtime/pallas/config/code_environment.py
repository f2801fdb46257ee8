"""Variables that the code of agents sets when it is imported, as its text says; nothing is run."""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from io import StringIO
from pathlib import Path
from typing import Final

from .agent_code import not_imported, parsed
from .files import is_file
from .models import AgentConfig, Mistake
from .notes import Notes
from .project_imports import find_imports
from .textfile import read_text

_ENV_FILE: Final = ".env"
_UNSET: Final = re.compile(r"\b([A-Za-z_]\w*)(?:, which)? is not set\b")


def set_by_code(root: Path, agents: Iterable[AgentConfig]) -> frozenset[str]:
    """Return the names of the variables that the modules of agents set. Blocks."""
    return frozenset(name for agent in agents for name in _set_by(root, agent))


def without_names(found: tuple[Mistake, ...], names: Collection[str]) -> tuple[Mistake, ...]:
    """Return the mistakes without warnings that one of these variables is not set."""
    return tuple(
        each
        for each in found
        if each.level == "error" or not any(name in names for name in _UNSET.findall(each.problem))
    )


def says_unset(found: Iterable[Mistake]) -> bool:
    """Whether one of the mistakes is that a variable is not set."""
    return any(_UNSET.search(each.problem) for each in found)


def _set_by(root: Path, agent: AgentConfig) -> Iterator[str]:
    for path in find_imports(root, agent.module).files if agent.module else ():
        tree = parsed(path)
        inner = not_imported(tree) if tree is not None else {}
        for node in ast.walk(tree) if tree is not None else ():
            if id(node) not in inner:
                yield from _set_at(node, root, path)


def _set_at(node: ast.AST, root: Path, path: Path) -> Iterator[str]:
    match node:
        case ast.Assign(targets=[ast.Subscript(value=value, slice=ast.Constant(value=str(name)))]):
            # `os.environ["KEY"] = os.environ.get("KEY", "")` sets nothing.
            repeated = any(
                isinstance(each, ast.Constant) and each.value == name for each in ast.walk(node.value)
            )
            if _is_environ(value) and not repeated:
                yield name
        case ast.Call(
            func=ast.Attribute(value=value, attr="setdefault"), args=[ast.Constant(value=str(name)), _]
        ):
            if _is_environ(value):
                yield name
        case ast.Call(func=ast.Attribute(value=value, attr="update"), args=args, keywords=keywords):
            if _is_environ(value):
                yield from (each.arg for each in keywords if each.arg)
                keys = (key for each in args if isinstance(each, ast.Dict) for key in each.keys)
                yield from (
                    key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
                )
        case ast.Call(func=ast.Name(id="load_dotenv") | ast.Attribute(attr="load_dotenv")):
            yield from _names_in(_file_of(node, root, path))


def _is_environ(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute | ast.Name) and (
        getattr(node, "attr", "") == "environ" or getattr(node, "id", "") == "environ"
    )


def _file_of(call: ast.Call, root: Path, path: Path) -> Path | None:
    """Return the file that ``load_dotenv`` reads: the one named, else the next `.env` above the module."""
    named = next(iter(call.args), None) or next(
        (each.value for each in call.keywords if each.arg == "dotenv_path"), None
    )
    texts = [each.value for each in ast.walk(named) if isinstance(each, ast.Constant)] if named else []
    if names := [each for each in texts if isinstance(each, str) and each]:
        beside = (folder.joinpath(*names) for folder in (root, path.parent))
        return next((each for each in beside if is_file(each)), None)
    folders = [path.parent, *path.parent.parents][:8]
    return next((each / _ENV_FILE for each in folders if is_file(each / _ENV_FILE)), None)


def _names_in(path: Path | None) -> Iterator[str]:
    if path is None:
        return
    from dotenv.parser import parse_stream

    for binding in parse_stream(StringIO(read_text(path, "", Notes()) or "")):
        if binding.key is not None and binding.value:
            yield binding.key
