"""Folders of skills, as fast-agent looks for them: each skill is a folder with a SKILL.md."""

from pathlib import Path
from typing import Final

from .files import folder_like, is_file, is_folder, shown
from .notes import suggest

OPTIONAL: Final = (".fast-agent/skills", ".agents/skills", ".claude/skills")
"""Where fast-agent looks by itself: these may be missing."""
SKILL: Final = "SKILL.md"
_MAX_FOLDERS: Final = 500
"""Folders that are looked at."""


def missing_skills(root: Path, name: str) -> tuple[str, ...]:
    """Problem and hints for a folder of skills, from which fast-agent would take none. Blocks."""
    folder = root / name
    if not is_folder(folder):
        problem = f"names {name}, which is a file" if is_file(folder) else f"there is no folder {name}"
        hints = "create it, or correct the name", suggest(folder_like(root, folder))
        return f"{problem}; an agent starts without these skills", *hints
    if is_file(folder / SKILL):
        above = shown(root, folder.parent)
        problem = f"{name} is one skill, and no folder of skills; an agent starts without it"
        return problem, f"name the folder above it, {above}"
    if not any(is_file(each / SKILL) for each in _folders_in(folder)):
        return f"{name} has no skill in it", f"each skill is a folder there with a {SKILL}"
    return ()


def skill_files(folder: Path) -> tuple[Path, ...]:
    """The files of the skills in a folder. Blocks."""
    return tuple(each / SKILL for each in _folders_in(folder) if is_file(each / SKILL))


def _folders_in(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir())[:_MAX_FOLDERS]
    except OSError:
        return []
