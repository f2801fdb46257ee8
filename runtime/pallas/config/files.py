"""Where the files lie that a project names, found without importing or running anything."""

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from .notes import nearest, suggest
from .section import Section

# A file may have a name that no import statement can write: a hyphen, a digit at its start.
_DOTTED: Final = re.compile(r"\w[\w-]*(\.\w[\w-]*)*", re.ASCII)
_MAX_LISTED: Final = 500


def module_problem(text: str) -> str | None:
    """What is wrong with a dotted module name, None when nothing is."""
    if _DOTTED.fullmatch(text):
        return None
    stem = text.removeprefix("./").removesuffix(".py").replace("/", ".").replace("\\", ".")
    if stem != text and _DOTTED.fullmatch(stem):
        return f"is a path; write the module's dotted name, {stem}"
    return "is not a module name; allowed: names joined by dots, such as agents.jarvis"


def module_file(root: Path, module: str) -> Path | None:
    """The file of a dotted module inside ``root``: ``a/b.py`` or ``a/b/__init__.py``."""
    base = root.joinpath(*module.split("."))
    # As Python does it: a package goes before a module of the same name.
    return next(
        (file for file in (base / "__init__.py", base.with_name(base.name + ".py")) if is_file(file)), None
    )


def module_like(root: Path, module: str) -> str | None:
    """A module that is there and whose name is close to ``module``."""
    found = [_dotted(root, file) for file in _listed(root, ("*.py", "*/*.py", "*/*/__init__.py"))]
    if near := nearest(module, (name for name in found if name), cutoff=0.75):
        return near
    deep = file_like(root, root.joinpath(*module.split(".")).with_suffix(".py"))
    return _dotted(root, root / deep) if deep else None


def file_like(root: Path, path: Path) -> str | None:
    """A file whose path is close to ``path``, relative to ``root`` where it lies inside."""
    return _like(root, path, is_file)


def folder_like(root: Path, path: Path) -> str | None:
    """The same for a folder."""
    return _like(root, path, is_folder)


def _like(root: Path, path: Path, fits: Callable[[Path], bool]) -> str | None:
    """What is close to ``path``, part by part from the folder that is there; None if some part has none."""
    found, *missing = _from_what_is_there(Path(os.path.normpath(path)))
    for number, part in enumerate(missing, 1):
        is_right = fits if number == len(missing) else is_folder
        near = {each.name: each for each in _listed(found, ("*",)) if is_right(each)}
        name = part if part in near else nearest(part, near, cutoff=0.75)
        if name is None:
            return None
        found = near[name]
    return shown(root, found) if missing and fits(found) else None


def _from_what_is_there(path: Path) -> tuple[Path, *tuple[str, ...]]:
    """The deepest folder of a path that is there, and the names below it."""
    names: list[str] = []
    while not is_folder(path) and path != path.parent:
        names.insert(0, path.name)
        path = path.parent
    return path, *names


def shown(root: Path, path: Path) -> str:
    """``path`` as the user would write it: relative to the project where it lies inside."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def absolute(path: Path) -> Path:
    """``path`` made absolute, links followed, ``~`` replaced where there is such a user."""
    with suppress(RuntimeError):
        path = path.expanduser()
    with suppress(OSError, ValueError):
        return path.resolve()
    return path.absolute()


def is_there(path: Path) -> bool:
    """Whether something has this name; what may not be looked at counts as absent."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """Whether a file is there; a name that no file can have is answered with no."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether a folder is there."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def lost_link(path: Path) -> str:
    """``is a link that leads nowhere``, for a link to nothing or to itself; empty for any other path."""
    try:
        return "is a link that leads nowhere" if path.is_symlink() and not path.exists() else ""
    except (OSError, ValueError):
        return "is a link that leads nowhere"


def project_file(
    section: Section,
    key: str,
    root: Path,
    text: str | None,
    like: Callable[[Path, Path], str | None] = file_like,
) -> Path | None:
    """The file that ``key`` names, relative to the project, as an absolute path; noted when not there.

    ``like`` finds what was meant then.
    """
    if text is None:
        return None
    path = root / text
    if is_folder(path):
        section.error(key, f"{text} is a folder", "name a file in it")
    elif words := lost_link(path):
        section.error(key, f"{text} {words}", "put the file there, or correct the link")
    elif not is_file(path):
        section.error(
            key,
            f"there is no file {text}",
            "paths start at the project's folder",
            suggest(like(root, path)),
        )
    return path


def _listed(folder: Path, patterns: Iterable[str]) -> list[Path]:
    found: list[Path] = []
    try:
        for pattern in patterns:
            for file in folder.glob(pattern):
                found.append(file)
                if len(found) == _MAX_LISTED:
                    return found
    except (OSError, ValueError):
        pass
    return found


def _dotted(root: Path, file: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
