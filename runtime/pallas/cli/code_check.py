"""Check the text of the agents' code: syntax errors, and missing names."""

import ast
import warnings
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from pallas.config import AgentConfig, Mistake, Project, Where
from pallas.config.agent_code import (
    WRITE_FAST,
    choice_of,
    hidden_cards,
    hidden_fast,
    server_mistakes,
    skill_warnings,
)
from pallas.config.cards import passed_over, read_cards
from pallas.config.code import module_of, payload_module
from pallas.config.files import is_folder, module_file, shown
from pallas.config.included_files import missing_includes, misspelt_placeholders
from pallas.config.needed_modules import missing_modules, old_imports, unknown_modules
from pallas.config.notes import Notes, did_you_mean
from pallas.config.project_imports import find_imports

_DYNAMIC: Final = frozenset({"exec", "globals", "locals", "vars", "setattr", "__getattr__", "sys"})
"""A module that uses one of these may have names that its text does not show."""
_DEFINED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def read_code(project: Project, imported: Container[str] = ()) -> tuple[Mistake, ...]:
    """Return mistakes in the agents' modules and cards that show without an import, agent by agent.

    Reads what ``agents.yaml`` names, and what modules import from the project. Runs nothing. For
    agents in ``imported`` the import has already reported missing names.
    """
    notes, trees = Notes(), dict[Path, ast.Module | None]()
    for agent in project.agents.values():
        for module in dict.fromkeys(filter(None, (module_of(agent), payload_module(agent)))):
            for path in find_imports(project.root, module).files:
                if path not in trees:
                    trees[path] = parsed(project.root, path, f"agents.{agent.name}", notes)
        _note_named(project, agent, notes)
        _note_choice(project, agent, notes)
        _note_fast(project, agent, notes, is_imported=agent.name in imported)
        _note_all(missing_includes(project.root, agent, trees.get), notes)
        _note_all(misspelt_placeholders(project.root, agent, trees.get), notes)
        for key, named in _named(agent) if agent.name not in imported else ():
            _look_for(project.root, agent, key, named, trees, notes)
    _note_cards(project, notes)
    _note_missing_cards(project, notes)
    _note_params(project, trees, notes)
    return notes.sorted([])


def _note_params(project: Project, trees: Mapping[Path, ast.Module | None], notes: Notes) -> None:
    """Note what is wrong in ``RequestParams(...)``. Imports fast-agent only if a module has some."""
    names = (node for tree in trees.values() if tree is not None for node in ast.walk(tree))
    if not any(isinstance(each, ast.alias) and each.name == "RequestParams" for each in names):
        return
    from pallas.executors.fastagent.request_params import code_mistakes

    for agent in project.agents.values():
        _note_all(code_mistakes(project.root, agent) if agent.kind == "llm" else (), notes)


def _note_named(project: Project, agent: AgentConfig, notes: Notes) -> None:
    _note_all((*server_mistakes(project, agent), *skill_warnings(project, agent)), notes)


def _note_all(mistakes: Iterable[Mistake], notes: Notes) -> None:
    for mistake in mistakes:
        note = notes.error if mistake.level == "error" else notes.warn
        note(mistake.where, mistake.key, mistake.problem, mistake.hint)


def _note_choice(project: Project, agent: AgentConfig, notes: Notes) -> None:
    found = choice_of(project.root, agent)
    if found is not None and found[0].words:
        note = notes.warn if found[0].name else notes.error
        note(agent.where, f"agents.{agent.name}.{found[0].key}", *found[0].words)


def _note_fast(project: Project, agent: AgentConfig, notes: Notes, *, is_imported: bool) -> None:
    """Note what keeps a module from having a FastAgent, where its text is enough to be certain."""
    key = f"agents.{agent.name}.module"
    for name, fix in old_imports(project.root, agent):
        notes.error(name.where, key, f"imports {name.text}, which fast-agent does not have", fix)
    for name, fix in unknown_modules(project.root, agent) if not is_imported else ():
        notes.warn(name.where, key, f"imports {name.text}, which fast-agent does not have", fix)
    for name, fix in missing_modules(project.root, agent) if not is_imported else ():
        notes.warn(name.where, key, f"imports {name.text}, which is not installed", fix)
    path = module_file(project.root, agent.module) if agent.module else None
    if path is not None and (found := hidden_fast(project.root, path)):
        notes.error(found.where, key, found.text, WRITE_FAST)
    elif cards := hidden_cards(project.root, agent):
        notes.error(cards[0].where, key, cards[0].text, cards[1])


def _note_cards(project: Project, notes: Notes) -> None:
    """Note what is wrong in each card, and what a folder of cards has that is none, once."""
    cards = [agent for agent in project.agents.values() if agent.card is not None]
    if not cards:
        return
    from pallas.executors.fastagent.card_seam import card_mistakes

    seen: set[Path] = set()
    for agent in cards:
        assert agent.card is not None
        key = f"agents.{agent.name}.card"
        for card in read_cards(project.root, agent.card).cards:
            if card.path not in seen:
                seen.add(card.path)
                _note_all(card_mistakes(project.root, card, key), notes)
        if is_folder(agent.card) and agent.card not in seen:
            seen.add(agent.card)
            _note_all(passed_over(project.root, agent.card), notes)


def _note_missing_cards(project: Project, notes: Notes) -> None:
    """Note each name that no card has once, however many agents come to it."""
    seen: set[Where] = set()
    for agent in project.agents.values():
        for missing in read_cards(project.root, agent.card).missing if agent.card is not None else ():
            if missing.where not in seen:
                seen.add(missing.where)
                notes.error(missing.where, f"agents.{agent.name}.card", *missing.words)


def parsed(root: Path, path: Path, key: str, notes: Notes) -> ast.Module | None:
    """Parse a file of Python; None after a mistake in it was noted."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(path.read_bytes(), path.name)
    except SyntaxError as error:
        # Without the line itself: it may contain a key.
        where, problem = Where(shown(root, path), error.lineno or 0), f"is not valid Python: {error.msg}"
        notes.error(where, key, problem, "fix it there, or in a line above")
    except (ValueError, RecursionError, MemoryError) as error:
        notes.error(Where(shown(root, path)), key, f"is not valid Python: {type(error).__name__}")
    except OSError as error:
        notes.error(Where(shown(root, path)), key, f"cannot be read: {error.strerror}")
    return None


def _named(agent: AgentConfig) -> Iterator[tuple[str, str]]:
    """Yield the keys that name something in a module, and its name (``module:NAME``)."""
    if agent.handler is not None and agent.handler.path:
        yield "handler", agent.handler.path
    if agent.typed is not None:
        yield "payload", agent.typed.payload


def _look_for(
    root: Path, agent: AgentConfig, key: str, named: str, trees: dict[Path, ast.Module | None], notes: Notes
) -> None:
    """Note a name that a module of the project lacks, or of the wrong kind; only when certain."""
    module, _, attribute = named.partition(":")
    name = attribute.partition(".")[0]
    path = module_file(root, module)
    tree = trees.get(path) if path is not None else None
    if tree is None or path is None or module_file(root, f"{module}.{name}") is not None:
        return
    there, of_agent = _names(tree), f"agents.{agent.name}.{key}"
    if there is None:
        return
    if name not in there:
        meant = did_you_mean(name, (each for each in there if not each.startswith("_")))
        notes.error(agent.where, of_agent, f"there is no {name} in {shown(root, path)}", meant)
    elif agent.typed is not None and name == attribute and isinstance(definition := there[name], _DEFINED):
        problem, hint = _unfit(definition, key, tree)
        if problem:
            notes.error(Where(shown(root, path), definition.lineno), of_agent, f"{name} {problem}", hint)


def _unfit(
    definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, key: str, tree: ast.Module
) -> tuple[str, str]:
    """Return why it is no typed handler or payload (HC-1), and the fix; empty if only its import can tell."""
    write = f"write `async def {definition.name}(payload, metadata)`"
    if definition.decorator_list:
        return "", ""
    if key == "handler":
        if isinstance(definition, ast.ClassDef):
            return "is a class, where a function is needed", write
        return ("is not asynchronous", write) if isinstance(definition, ast.FunctionDef) else ("", "")
    if not isinstance(definition, ast.ClassDef):
        return "is a function, where a dataclass is needed", ""
    if (
        definition.bases or definition.keywords or _is_handed_on(definition.name, tree)
    ):  # as to `dataclass(...)`
        return "", ""
    return "is not a dataclass", "put `@dataclass` above it"


def _is_handed_on(name: str, tree: ast.Module) -> bool:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(each, ast.Name) and each.id == name for call in calls for each in call.args)


def _names(tree: ast.Module) -> dict[str, ast.AST | None] | None:
    """Return the names that a module has after import; None when only its import can tell.

    Each name comes with the node that defines it, or None when several do.
    """
    found: dict[str, ast.AST | None] = {}

    def bind(name: str, by: ast.AST) -> None:
        found[name] = by if name not in found else None

    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _DYNAMIC:
            return None
        if isinstance(node, ast.Global):
            for name in node.names:
                bind(name, node)
    for node in _at_the_top(tree.body):
        if isinstance(node, _DEFINED):
            bind(node.name, node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                bind(alias.asname or alias.name.partition(".")[0], node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bind(node.id, node)
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            bind(node.name, node)
    return None if found.keys() & {"*", *_DYNAMIC} else found


def _at_the_top(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield these nodes and their children, as deep as they belong to the module itself."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*_DEFINED, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
