"""What fast-agent refuses in a card, with the line of the key; nothing of a project is run.

``tests/contract/test_card_seam.py`` fails when the wrapped code changes.
"""

import re
import warnings
from collections.abc import Iterator
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
from pallas.config.tree import Leaf, Table, plain
from pallas.safe_text import one_line

_QUOTED: Final = re.compile(r"'(\w+)")
"""A key in the words of fast-agent."""
_TYPE: Final = "type"


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
        if not _note_keys(card.table, key, notes):
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
            f"type {given} is no kind of card",
            did_you_mean(str(given), kinds) or allowed(kinds),
        )
        return True
    names = sorted(ALLOWED_FIELDS_BY_TYPE[kind])
    unknown = [name for name in table.entries if name not in names]
    for name in unknown:
        hint = did_you_mean(name, names) or "remove it; a key of Pallas stands in agents.yaml"
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
        hint = str(getattr(error, "details", "")).replace(f"{root}/", "")
        if hint == f"Path: {shown(root, card.path)}":
            hint = ""
        named = (name for name in _QUOTED.findall(problem) if name in table.entries)
        at = next((table.entries[name].where for name in named), where)
        notes.error(at, key, one_line(problem[:1].lower() + problem[1:], 300), one_line(hint, 300))


def _values(table: Table) -> Iterator[tuple[str, object]]:
    for name, entry in table.entries.items():
        yield name, plain(entry.node)


def _inert(text: str) -> str:
    """Return the text without placeholders, which would be fetched or read."""
    return text.replace("{{", "{ ")
