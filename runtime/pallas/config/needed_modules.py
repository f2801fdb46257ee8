"""Modules that code imports and that are not there, and what to do about each; nothing is imported."""

import ast
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from .agent_text import Name
from .code import module_of
from .files import module_file, shown
from .models import AgentConfig, Where
from .project_imports import find_imports

OLD_PACKAGE: Final = "mcp_agent"
"""The package that fast-agent was in before."""
_NEW_PACKAGE: Final = "fast_agent"
_OLD_NAME: Final = "mcp_agent is the old name of its package"
_MOVED: Final[Mapping[str, tuple[str, str]]] = {
    "AgentConfig": ("fast_agent", "AgentConfig"),
    "FastAgent": ("fast_agent", "FastAgent"),
    "Prompt": ("fast_agent", "Prompt"),
    "PromptMessageMultipart": ("fast_agent.types", "PromptMessageExtended"),
    "RequestParams": ("fast_agent", "RequestParams"),
    "get_logger": ("fast_agent.core.logging.logger", "get_logger"),
    "load_prompt": ("fast_agent", "load_prompt"),
}
"""Where fast-agent has now what its users imported from its old package, and its name there."""
_DISTRIBUTIONS: Final[Mapping[str, str]] = {
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "GitPython",
    "googleapiclient": "google-api-python-client",
    "google_auth_oauthlib": "google-auth-oauthlib",
    "vertexai": "google-cloud-aiplatform",
    "PIL": "pillow",
    "serial": "pyserial",
    "sklearn": "scikit-learn",
    "telegram": "python-telegram-bot",
    "yaml": "PyYAML",
}
"""What is installed for a module, where that has another name."""
_SKIPPED: Final = frozenset({"node_modules", "site-packages", "venv", "__pycache__", "build", "dist"})
_MOST_FOLDERS: Final = 500
_DEEPEST: Final = 4


def old_imports(root: Path, config: AgentConfig) -> Iterator[tuple[Name, str]]:
    """Yield each import of fast-agent's old package with what to write, unless there is another way."""
    if (root / OLD_PACKAGE).is_dir() or find_spec(OLD_PACKAGE) is not None:
        return
    for path, node in _imports(root, config.module):
        for module in _modules(node):
            if module.partition(".")[0] == OLD_PACKAGE:
                yield Name(module, Where(shown(root, path), node.lineno)), _new_import(node, module)


def unknown_modules(root: Path, config: AgentConfig) -> Iterator[tuple[Name, str]]:
    """Yield each module of fast-agent that code imports at its top level and the installed one lacks."""
    if module_file(root, _NEW_PACKAGE) is not None or find_spec(_NEW_PACKAGE) is None:
        return
    for path, node in _imports(root, config.module, only_top=True):
        for module in _modules(node):
            if module.startswith(f"{_NEW_PACKAGE}.") and not _has_module(module):
                yield Name(module, Where(shown(root, path), node.lineno)), fix_of(root, module)


def missing_modules(root: Path, config: AgentConfig) -> Iterator[tuple[Name, str]]:
    """Yield each module that code imports at its top level and that nothing has, with what to do about it."""
    seen: set[str] = set()
    for path, node in _imports(root, module_of(config), only_top=True):
        for module in _modules(node):
            top = module.partition(".")[0]
            if top not in seen and top != OLD_PACKAGE and not _is_there(root, top):
                yield Name(top, Where(shown(root, path), node.lineno)), fix_of(root, top)
            seen.add(top)


def fix_of(root: Path, module: str, line: str = "") -> str:
    """Return what to do about a module that was not found, by its whole name and the line that imports it."""
    top = module.partition(".")[0]
    if top == OLD_PACKAGE:
        return _fix_of_old(line)
    if (found := _elsewhere(root, top)) is not None:
        return _fix_of_own(root, found, top)
    if top == _NEW_PACKAGE:
        return f"fast-agent {version('fast-agent-mcp')} has no such module"
    if "." in module and _is_there(root, top):
        return ""
    package = _DISTRIBUTIONS.get(top, top.replace("_", "-"))
    return f"install it where Pallas is: {_install(package)}"


def _fix_of_old(line: str) -> str:
    with suppress(SyntaxError, ValueError):
        for node in ast.parse(line.strip()).body:
            if isinstance(node, ast.Import | ast.ImportFrom) and (module := next(_modules(node), "")):
                return _new_import(node, module)
    return f"{_OLD_NAME}: write `from fast_agent import FastAgent`"


def _fix_of_own(root: Path, found: Path, top: str) -> str:
    place = f"{shown(root, found)} is not in the project's folder"
    if found.parent == root / "src" and any(
        (root / each).is_file() for each in ("pyproject.toml", "setup.py")
    ):
        return f"{place}: install the project itself where Pallas is, `pip install -e .`"
    name, folder = ".".join((*found.parent.relative_to(root).parts, top)), shown(root, found.parent)
    return f"{place}: import it as {name}, or add {folder} to sys.path before that line"


def _install(package: str) -> str:
    if "pipx" in Path(sys.prefix).parts:
        return f"`pipx inject pallas-mcp {package}`"
    if {"uv", "tools"} <= {*Path(sys.prefix).parts}:
        return f"`uv tool install --with {package} pallas-mcp`"
    return f"`pip install {package}` or `uv add {package}`"


def _new_import(node: ast.Import | ast.ImportFrom, module: str) -> str:
    new = _NEW_PACKAGE + module.removeprefix(OLD_PACKAGE)
    names = [each.name for each in node.names] if isinstance(node, ast.ImportFrom) else []
    if names and all(name in _MOVED for name in names):
        by_place: dict[str, list[str]] = {}
        for name in names:
            place, own = _MOVED[name]
            by_place.setdefault(place, []).append(own)
        lines = (f"`from {place} import {', '.join(own)}`" for place, own in by_place.items())
        return f"{_OLD_NAME}: write {' and '.join(lines)}"
    if _has_module(new):
        return f"{_OLD_NAME}: write `{f'from {new} import {", ".join(names)}' if names else f'import {new}'}`"
    wanted = f" for {', '.join(names)}" if names else ""
    return f"{_OLD_NAME}, fast_agent, which has no {new}: look there{wanted}"


def _has_module(name: str) -> bool:
    """Whether fast-agent has a module, by its files."""
    spec = find_spec(_NEW_PACKAGE)
    places = spec.submodule_search_locations if spec is not None else None
    rest = name.split(".")[1:]
    return any(
        (base := Path(place, *rest)).is_dir() or base.with_name(f"{base.name}.py").is_file()
        for place in places or ()
    )


def _is_there(root: Path, top: str) -> bool:
    if (root / top).is_dir() or module_file(root, top) is not None or top in sys.modules:
        return True
    try:
        return find_spec(top) is not None
    except (ImportError, ValueError, AttributeError):
        return True  # something is


def _elsewhere(root: Path, top: str) -> Path | None:
    """A module of the project in one of its folders, where an import from the project's folder misses it."""
    folders, looked = [root], 0
    while folders and looked < _MOST_FOLDERS:
        folder = folders.pop(0)
        looked += 1
        try:
            inner = sorted(each for each in folder.iterdir() if each.is_dir())
        except OSError:
            continue
        if folder != root:
            for found in (folder / f"{top}.py", folder / top / "__init__.py"):
                if found.is_file():
                    return found if found.stem == top else found.parent
        if len(folder.relative_to(root).parts) < _DEEPEST:
            folders += [each for each in inner if each.name not in _SKIPPED and not each.name.startswith(".")]
    return None


def _imports(
    root: Path, module: str | None, *, only_top: bool = False
) -> Iterator[tuple[Path, ast.Import | ast.ImportFrom]]:
    """Each import of a module, and of those of the project that it imports, that is not tried.

    ``only_top``: that runs when its module is imported; none if a module changes where modules are found.
    """
    for path in find_imports(root, module).files if module else ():
        tree = _parsed(path)
        if only_top and _changes_path(tree):
            return
        tried = {id(each) for node in ast.walk(tree) if isinstance(node, ast.Try) for each in ast.walk(node)}
        for node in tree.body if only_top else ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in tried:
                yield path, node


def _changes_path(tree: ast.Module) -> bool:
    nodes = [*ast.walk(tree)]
    has_path = any(isinstance(each, ast.Attribute) and each.attr == "path" for each in nodes)
    return has_path and any(isinstance(each, ast.Name) and each.id == "sys" for each in nodes)


def _modules(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names)
    elif not node.level and node.module:
        yield node.module


def _parsed(path: Path) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(path.read_bytes(), path.name)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ast.Module([], [])  # reported elsewhere
