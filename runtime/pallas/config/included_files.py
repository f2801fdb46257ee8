"""Files that instructions include, which have to be there: fast-agent makes no agent without them."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from .cards import read_cards
from .files import file_like, is_file, is_folder, shown
from .models import AgentConfig, Mistake, Where
from .notes import Notes, suggest
from .project_imports import find_imports
from .textfile import read_text, text_problem

_INCLUDE: Final = re.compile(r"(?<![\\{])\{\{file:\s*([^{}]+?)\s*\}\}(?!\})")
"""What fast-agent replaces by the text of a file, and fails on if there is none."""
_FROM_ROOT: Final = "paths start at the project's folder"


def missing_includes(
    root: Path, agent: AgentConfig, parse: Callable[[Path], ast.Module | None]
) -> tuple[Mistake, ...]:
    """The includes of an agent's card or module that lead to no text, each at its line. Blocks.

    ``parse`` returns the tree of a module, None if it cannot be parsed.
    """
    notes = Notes()
    for path, text, line in _instructions(root, agent, parse):
        for found in _INCLUDE.finditer(text):
            if words := _problem(root, found[1]):
                where = Where(shown(root, path), line + text.count("\n", 0, found.start()))
                notes.error(where, f"agents.{agent.name}.instruction", *words)
    return notes.sorted([])


def _problem(root: Path, name: str) -> tuple[str, ...]:
    """Problem and hints for a file that is included by this name; empty if nothing is wrong."""
    if Path(name).expanduser().is_absolute():
        return f"includes {name}", "write a path from the project's folder"
    path = root / name
    if is_folder(path):
        return f"includes {name}, which is a folder", "name a file in it"
    if not is_file(path):
        return f"includes {name}, which does not exist", _FROM_ROOT, suggest(file_like(root, path))
    if problem := text_problem(path):
        return f"includes {name}, which {problem}", "include a text, saved as UTF-8"
    notes = Notes()
    if read_text(path, name, notes) is None:
        mistake = notes.sorted([])[0]
        return f"includes {name}, which {mistake.problem}", mistake.hint
    return ()


def _instructions(
    root: Path, agent: AgentConfig, parse: Callable[[Path], ast.Module | None]
) -> Iterator[tuple[Path, str, int]]:
    """The texts that may be instructions, with file and line: a card, and the texts of a module."""
    if agent.kind != "llm":
        return
    if agent.card is not None:
        for card in read_cards(root, agent.card).cards:
            yield card.path, read_text(card.path, "", Notes()) or "", 1
        return
    for path in find_imports(root, agent.module).files if agent.module else ():
        if (tree := parse(path)) is not None:
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield path, node.value, node.lineno
