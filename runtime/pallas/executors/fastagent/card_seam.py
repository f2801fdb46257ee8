"""What fast-agent refuses in a card, with the line of the key; nothing of a project is run.

``tests/contract/test_card_seam.py`` fails when the wrapped code changes.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from fast_agent.core.agent_card_loader import _build_card_from_data
from fast_agent.core.agent_card_rules import (
    ALLOWED_FIELDS_BY_TYPE,
    apply_legacy_smart_defaults,
    normalize_card_type,
)

from pallas.config.cards import Card
from pallas.config.files import shown
from pallas.config.models import Mistake, Where
from pallas.config.notes import Notes, allowed, did_you_mean
from pallas.config.tree import Items, Leaf, Table, plain
from pallas.safe_text import one_line

from .request_params import note_table

_QUOTED: Final = re.compile(r"'(\w+)")
"""A key in the words of fast-agent."""
_TYPE: Final = "type"
_FIXES: Final[Mapping[str, str]] = {
    "list of strings": "write `KEY: [NAME]`",
    "a string": "write one text",
    "a boolean": "write true or false, without quotes",
    "an integer": "write a whole number, without quotes",
    "a dict": "write `key: value` lines below it",
}
"""What to write, by words of fast-agent."""


def card_mistakes(root: Path, card: Card, key: str) -> tuple[Mistake, ...]:
    """Return what keeps a card from being an agent, and warnings; ``key`` is the entry's. Blocks.

    Its keys are checked with the installed fast-agent. Nothing is fetched, and no code imported.
    """
    notes = Notes()
    for each in card.mistakes:
        note = notes.error if each.level == "error" else notes.warn
        note(each.where, key, each.problem, each.hint)
    if card.table is not None and not _is_refused(card):
        file = shown(root, card.path)
        params = card.table.get("request_params")
        refused = isinstance(params, Table) and note_table(params, key, notes)
        if not _note_keys(card.table, key, notes) and not refused:
            _note_refusal(root, card, card.table, Where(file), key, notes)
    return notes.sorted([])


def _is_refused(card: Card) -> bool:
    return any(each.level == "error" for each in card.mistakes)


def _note_keys(table: Table, key: str, notes: Notes) -> bool:
    """Note each key that no card of this type has, and a type that there is not; whether there was one."""
    raw = {name: each.node.value for name, each in table.entries.items() if isinstance(each.node, Leaf)}
    apply_legacy_smart_defaults(raw)
    given = raw.get(_TYPE)
    if _TYPE in table.entries and not isinstance(given, str | None):
        return False
    kind = normalize_card_type(given)
    if kind is None:
        kinds: list[str] = sorted(ALLOWED_FIELDS_BY_TYPE)
        notes.error(
            table.entries[_TYPE].where,
            key,
            f"type {given} is not a kind of card",
            did_you_mean(str(given), kinds) or allowed(kinds),
        )
        return True
    names = sorted(ALLOWED_FIELDS_BY_TYPE[kind])
    unknown = [name for name in table.entries if name not in names]
    for name in unknown:
        hint = did_you_mean(name, names) or "remove it; keys of Pallas belong in agents.yaml"
        notes.error(table.entries[name].where, key, f"there is no key {name} in a card of type {kind}", hint)
    return bool(unknown)


def _note_refusal(root: Path, card: Card, table: Table, where: Where, key: str, notes: Notes) -> None:
    """Note the first thing that fast-agent refuses in a card whose keys are right."""
    raw = dict(_values(table))
    if isinstance(text := raw.get("instruction"), str):
        raw["instruction"] = _inert(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _build_card_from_data(card.path, raw, body=_inert(card.body))
    except Exception as error:
        problem = str(getattr(error, "message", "") or error).replace(f" in {card.path}", "")
        details = " ".join(str(getattr(error, "details", "")).replace(f"{root}/", "").split())
        if details == f"Path: {shown(root, card.path)}":
            details = ""
        named = [name for name in (*_QUOTED.findall(problem), *problem.split()) if name in table.entries]
        at = table.entries[named[0]].where if named else where
        fix = next((fix for words, fix in _FIXES.items() if words in problem), "")
        hint = fix.replace("KEY", named[0] if named else "key")
        notes.error(at, key, one_line(problem[:1].lower() + problem[1:], 300), one_line(details, 300), hint)
    else:
        if isinstance(table.get("model"), Items | Table):
            notes.error(table.entries["model"].where, key, "'model' must be a string", _FIXES["a string"])


def _values(table: Table) -> Iterator[tuple[str, object]]:
    for name, entry in table.entries.items():
        yield name, plain(entry.node)


def _inert(text: str) -> str:
    """Return the text without placeholders, which would be fetched or read."""
    return text.replace("{{", "{ ")
