"""Which files Python would look at for a module or a command, found without running anything."""

import ast
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

# Files that are read for one entry, and bytes of one.
_MAX_FILES: Final = 1_000
_MAX_BYTES: Final = 2 * 1024 * 1024


def module_paths(root: Path, module: str) -> tuple[Path, ...]:
    """Where ``module`` is looked for below ``root``, its packages' own files among them."""
    parts = module.split(".")
    packages = (root.joinpath(*parts[:size], "__init__.py") for size in range(1, len(parts) + 1))
    return (*packages, root.joinpath(*parts).with_name(parts[-1] + ".py"))


def sources(entries: Iterable[Path], roots: Sequence[Path]) -> frozenset[Path]:
    """The entries, and every path where something they import from one of ``roots`` is or would be. Blocks.

    Imports are followed from file to file; those in functions and conditions count too.
    """
    found: set[Path] = set()
    waiting = list(entries)
    read = 0
    while waiting and read < _MAX_FILES:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix == ".py" and (tree := _parsed(path)) is not None:
            read += 1
            waiting += [each for each in _imported(tree, path, roots) if each not in found]
    return frozenset(found)


def command_files(command: Sequence[str], cwd: Path, root: Path) -> frozenset[Path]:
    """The files below ``root`` that a command line runs: those it names, and what they import. Blocks."""
    named: set[Path] = set()
    roots = [cwd]
    for at, word in enumerate(command):
        if at and command[at - 1] == "-m" and word.replace(".", "").replace("_", "").isalnum():
            named |= {path for path in module_paths(cwd, word) if path.is_file()}
            named |= {path for path in (cwd.joinpath(*word.split("."), "__main__.py"),) if path.is_file()}
            continue
        path = _file(word, cwd) or (_file(found, cwd) if not at and (found := shutil.which(word)) else None)
        if path is not None and path.is_relative_to(root):
            named.add(path)
            roots.append(path.parent)
    return frozenset(path for path in sources(named, roots) if path.is_relative_to(root))


def _file(word: str, cwd: Path) -> Path | None:
    if not word or word.startswith("-") or len(word) > 1_000 or "\0" in word:
        return None
    path = cwd / word
    try:
        return path if path.is_file() else None
    except OSError:
        return None


def _parsed(path: Path) -> ast.Module | None:
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        return ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _imported(tree: ast.Module, path: Path, roots: Sequence[Path]) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _anywhere(alias.name, roots)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [module] if module else []
            names += [f"{module}.{alias.name}".lstrip(".") for alias in node.names if alias.name != "*"]
            if node.level:
                base = path.parents[min(node.level, len(path.parents)) - 1]
                for name in names:
                    yield from module_paths(base, name)
            else:
                for name in names:
                    yield from _anywhere(name, roots)


def _anywhere(module: str, roots: Sequence[Path]) -> Iterator[Path]:
    for root in roots:
        yield from module_paths(root, module)
