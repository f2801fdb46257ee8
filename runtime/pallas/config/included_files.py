"""What instructions include: files, which have to be there, texts at URLs, and values of fast-agent."""

import ast
import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from pallas.model.redaction import redact_text

from .agent_code import instructions_in
from .cards import read_cards
from .files import file_like, is_file, is_folder, shown
from .models import AgentConfig, Mistake, Where
from .notes import Notes, suggest
from .project_imports import find_imports
from .textfile import read_text, text_problem
from .upstream import INCLUDES, PLACEHOLDERS

_INCLUDE: Final = re.compile(r"(?<![\\{])\{\{file:\s*([^{}]+?)\s*\}\}(?!\})")
"""What fast-agent replaces by the text of a file, and fails on if there is none."""
_URL: Final = re.compile(r"(?<!\\)\{\{url:(https?://[^}\s]+)\}\}")
_PLACEHOLDER: Final = re.compile(r"(?<![\\{$])\{\{([^{}\n]{1,200})\}\}(?!\})")
_WORD: Final = re.compile(r"\w{1,60}", re.ASCII)
_QUOTED: Final = re.compile(r"(?ms)^[ \t]*(```|~~~).*?(^[ \t]*\1|\Z)|`[^`\n]*`")
"""Code in a text of Markdown, in which braces are shown and not meant."""
_CLOSE: Final = 0.85
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


def included_urls(
    root: Path, agent: AgentConfig, parse: Callable[[Path], ast.Module | None]
) -> Iterator[tuple[Where, str]]:
    """Yield the URLs whose text an agent's instruction includes, with the line of each. Blocks."""
    for path, text, line in _instructions(root, agent, parse):
        for found in _URL.finditer(text):
            yield Where(shown(root, path), line + text.count("\n", 0, found.start())), found[1]


def unfetched(agent: AgentConfig, where: Where, url: str, error: BaseException) -> Mistake:
    """The mistake of a URL that gives no text: without it fast-agent makes no agent."""
    status = getattr(getattr(error, "response", None), "status_code", None) or getattr(error, "code", None)
    reason = f"the server answers {status}" if status else "there is no connection to it"
    if isinstance(error, UnicodeDecodeError):
        reason = "it is not UTF-8 text"
    notes = Notes()
    problem = f"includes {redact_text(url)}, which cannot be fetched: {reason}"
    notes.error(where, f"agents.{agent.name}.instruction", problem, "correct the address, or include a file")
    return notes.sorted([])[0]


def misspelt_placeholders(
    root: Path, agent: AgentConfig, parse: Callable[[Path], ast.Module | None]
) -> tuple[Mistake, ...]:
    """A warning for each ``{{name}}`` that is nearly one of fast-agent's: a model would read it as it is.

    Other names are the project's own. Blocks.
    """
    notes = Notes()
    for path, text, line in _own_instructions(root, agent, parse):
        code = [found.span() for found in _QUOTED.finditer(text)]
        for found in _PLACEHOLDER.finditer(text):
            if any(start <= found.start() < end for start, end in code):
                continue
            if meant := _meant(found[1]):
                where = Where(shown(root, path), line + text.count("\n", 0, found.start()))
                problem = f"holds {{{{{found[1]}}}}}, which fast-agent leaves as it is"
                notes.warn(where, f"agents.{agent.name}.instruction", problem, suggest(f"{{{{{meant}}}}}"))
    return notes.sorted([])


def _meant(text: str) -> str:
    """The placeholder of fast-agent that this nearly is; empty for one, and for anything else."""
    word, colon, rest = text.partition(":")
    known = INCLUDES if colon else PLACEHOLDERS
    name, rest = word.strip(), rest.strip()
    if not _WORD.fullmatch(name) or (colon and not rest) or (name.casefold() == "env" and not colon):
        return ""  # `{{ env }}` is more likely another template's
    plain = {each.casefold().replace("_", ""): each for each in known}
    written = name.casefold().replace("_", "")
    meant = plain.get(written)
    if meant is None and not colon and len(written) > 6:
        meant = next((plain[each] for each in get_close_matches(written, plain, 1, _CLOSE)), None)
    right = f"{meant}:{rest}" if colon else meant
    is_taken = right == text or (meant == word and meant in ("file", "file_silent"))
    return right if meant is not None and right is not None and not is_taken else ""


def _own_instructions(
    root: Path, agent: AgentConfig, parse: Callable[[Path], ast.Module | None]
) -> Iterator[tuple[Path, str, int]]:
    """The texts that are certainly instructions: a card, and what decorators of a module are given."""
    if agent.card is not None:
        yield from _instructions(root, agent, parse)
    for path in find_imports(root, agent.module).files if agent.kind == "llm" and agent.module else ():
        if (tree := parse(path)) is None:
            continue
        given = list(instructions_in(tree))
        texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        for node in given:
            match node:
                case ast.Constant(value=str(text)):
                    if texts.count(text) < 2:
                        yield path, text, node.lineno
                case ast.Call(func=ast.Name(id="Path"), args=[ast.Constant(value=str(name))], keywords=[]):
                    if is_file(root / name):
                        yield root / name, read_text(root / name, "", Notes()) or "", 1


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
