"""What fast-agent's RequestParams do not take, in cards and in the text of modules; nothing is run."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fast_agent.llm.request_params import RequestParams
from pydantic import ValidationError

from pallas.config import AgentConfig
from pallas.config.agent_code import parsed
from pallas.config.files import shown
from pallas.config.models import Mistake, Where
from pallas.config.notes import Notes, did_you_mean
from pallas.config.project_imports import find_imports
from pallas.config.tree import Table, plain

from .settings_refusals import refusal_words


@dataclass(frozen=True, slots=True)
class _Given:
    value: Any
    where: Where


def note_table(table: Table, key: str, notes: Notes) -> bool:
    """Note what is wrong in ``request_params`` of a card; return whether an agent cannot be made with it."""
    given = {name: _Given(plain(entry.node), entry.where) for name, entry in table.entries.items()}
    return _note(given, key, notes)


def code_mistakes(root: Path, agent: AgentConfig) -> tuple[Mistake, ...]:
    """Return what is wrong in ``RequestParams(...)`` of a module and of what it imports. Blocks."""
    notes = Notes()
    for path in find_imports(root, agent.module).files if agent.module else ():
        if (tree := parsed(path)) is None:
            continue
        for call in _calls(tree):
            file = shown(root, path)
            given = {
                each.arg: _Given(_constant(each.value), Where(file, each.lineno, each.col_offset + 1))
                for each in call.keywords
                if each.arg is not None
            }
            _note(given, f"agents.{agent.name}.module", notes)
    return notes.sorted([])


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == (
            "RequestParams"
        ):
            yield node


def _constant(node: ast.expr) -> Any:
    """Return the value that is written out, None for one that the code computes."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


@cache
def _names() -> tuple[str, ...]:
    """Return the names that a value may have, those of Python first."""
    fields = RequestParams.model_fields
    return (*fields, *(each.alias for each in fields.values() if each.alias))


def _note(given: Mapping[str, _Given], key: str, notes: Notes) -> bool:
    names = _names()
    for name in given.keys() - set(names):
        problem = f"request_params have no {name}, so it has no effect"
        notes.warn(given[name].where, key, problem, did_you_mean(name, names) or "remove it")
    known = {name: each.value for name, each in given.items() if name in names and each.value is not None}
    try:
        RequestParams(**known)
    except ValidationError as error:
        errors: Iterable[Mapping[str, Any]] = error.errors(include_url=False, include_context=False)
        for each in errors:
            name = str(each["loc"][0]) if each["loc"] else ""
            if found := given.get(name) or given.get(_other_name(name)):
                problem, hint = refusal_words(each)
                notes.error(found.where, key, f"request_params.{name} {problem}", hint)
        return True
    return False


def _other_name(alias: str) -> str:
    """Return the name of Python for an alias."""
    fields = RequestParams.model_fields.items()
    return next((name for name, each in fields if each.alias == alias), alias)
