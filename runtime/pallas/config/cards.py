"""Cards of fast-agent, and the cards that they refer to by name; nothing is loaded."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from .agent_text import CONNECT, FILTERS, AgentText, Name, leaves
from .files import is_file, is_folder, shown
from .models import Where
from .notes import Notes, allowed, did_you_mean
from .textfile import read_text
from .tree import Leaf, Table
from .yamlfile import read_documents

REFERENCES: Final = ("agents", "sequence", "fan_out", "fan_in", "generator", "evaluator", "worker")
"""Keys of a card that name other agents; each kind of card has some of them."""
FOLDERS: Final = ("agent-cards", "tool-cards")
"""Folders in which fast-agent keeps cards."""
_ASK_MODELS: Final = frozenset({"agent", "smart", "router", "orchestrator", "iterative_planner"})
"""The types of cards that ask a model themselves."""
_MARKDOWN: Final = (".md", ".markdown")
_YAML: Final = (".yaml", ".yml")
_NO_CARDS: Final = re.compile(r"SKILL\.md|(agents|organism|fast-?agent(\.config|\.secrets)?)\.yaml")
"""Files that may be in a folder of cards and are none."""
_CARD_KEY: Final = re.compile(r"^(type|name|instruction|model|servers|agents)\s*:", re.MULTILINE)
"""What a YAML file has that is a card: others may be beside it."""
_RULE: Final = "---"
_TOML_RULE: Final = "+++"
_MOST: Final = 500
"""Files of a folder that are looked at."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card's file: its agent, and the agents that it names, each with the key."""

    path: Path
    agent: AgentText
    references: tuple[tuple[str, Name], ...] = ()

    @property
    def name(self) -> str:
        """The agent's name, as fast-agent takes it."""
        return self.agent.name.text if self.agent.name is not None else self.path.stem


@dataclass(frozen=True, slots=True)
class CardSet:
    """The cards of an entry: its ``own``, those ``needed`` by them, and references that lead nowhere."""

    own: tuple[Card, ...] = ()
    needed: tuple[Card, ...] = ()
    missing: tuple["MissingCard", ...] = ()

    @property
    def cards(self) -> tuple[Card, ...]:
        """All of them, its own first."""
        return self.own + self.needed

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the agent is made of, and those that would be looked for."""
        return tuple(dict.fromkeys((*(each.path for each in self.cards), *(m.path for m in self.missing))))


@dataclass(frozen=True, slots=True)
class MissingCard:
    """A reference to an agent of no card: ``words`` are problem and hints, ``path`` where a card would be."""

    where: Where
    words: tuple[str, ...]
    path: Path


def card_files(folder: Path) -> tuple[Path, ...]:
    """The files of a folder that fast-agent takes for cards, in its order. Blocks; never raises."""
    try:
        found = sorted(folder.iterdir())[:_MOST]
    except OSError:
        return ()
    return tuple(path for path in found if _is_card(path))


def own_files(path: Path) -> tuple[Path, ...]:
    """The cards that an entry names by a file or a folder."""
    return card_files(path) if is_folder(path) else (path,)


def read_cards(root: Path, path: Path) -> CardSet:
    """The cards that ``path`` names, a card or a folder of cards, and what these refer to.

    A name is looked for among the cards of the same entry, then in the card's own folder, then in folders
    named ``agent-cards`` and ``tool-cards`` next to that or in it. Blocks; never raises.
    """
    library = _Library(root)
    own = tuple(map(library.card, own_files(path)))
    found = {each.name: each for each in reversed(own)}
    needed: dict[str, Card] = {}
    missing: list[MissingCard] = []
    waiting = list(own)
    while waiting:
        card = waiting.pop(0)
        for key, name in card.references:
            if name.text in found or name.text in needed:
                continue
            near = library.near(card.path)
            if (other := near.get(name.text)) is None:
                known = [each for each in dict.fromkeys((*found, *near)) if each != card.name]
                problem = f"{key} names {name.text}, and no card has that name"
                hint = allowed(known) or f"write {shown(root, card.path.parent)}/{name.text}.md"
                words = (problem, hint, did_you_mean(name.text, known))
                beside = card.path.with_name(f"{name.text}.md".replace("/", "_"))
                missing.append(MissingCard(name.where, words, beside))
                continue
            other = replace(other, agent=replace(other.agent, is_own=False))
            needed[name.text] = other
            waiting.append(other)
    return CardSet(tuple(own), tuple(needed.values()), tuple(missing))


@dataclass
class _Library:
    """Cards that were read, by file and by folder."""

    root: Path
    cards: dict[Path, Card] = field(default_factory=dict)

    def card(self, path: Path) -> Card:
        if path not in self.cards:
            self.cards[path] = _read(path, shown(self.root, path))
        return self.cards[path]

    def of(self, folder: Path) -> tuple[Card, ...]:
        return tuple(map(self.card, card_files(folder)))

    def near(self, path: Path) -> dict[str, Card]:
        """The cards that a card may refer to, by name; the nearest counts."""
        found: dict[str, Card] = {}
        for folder in _near(self.root, path.parent):
            for card in self.of(folder):
                found.setdefault(card.name, card)
        return found


def _near(root: Path, folder: Path) -> Iterable[Path]:
    above = (folder, folder.parent) if folder != root and folder.is_relative_to(root) else (folder,)
    return (folder, *(each / name for each in above for name in FOLDERS))


def is_card(path: Path) -> bool:
    """Whether a file that an entry names is a card, as far as its first line says: YAML may be any."""
    return path.suffix.strip().casefold() not in _MARKDOWN or _has_frontmatter(path)


def _is_card(path: Path) -> bool:
    suffix = path.suffix.strip().casefold()
    if not is_file(path) or _NO_CARDS.fullmatch(path.name) or suffix not in (*_MARKDOWN, *_YAML):
        return False
    return _CARD_KEY.search(_text(path)) is not None if suffix in _YAML else _has_frontmatter(path)


def _text(path: Path) -> str:
    return read_text(path, path.name, Notes()) or ""


def _has_frontmatter(path: Path) -> bool:
    """Whether a Markdown file is a card: its first line with text is a rule."""
    first = next((line.strip() for line in _text(path).splitlines() if line.strip()), "")
    return first in (_RULE, _TOML_RULE)


def _read(path: Path, file: str) -> Card:
    notes = Notes()
    text = read_text(path, file, notes) or ""
    if path.suffix.lower() not in _YAML:
        lines = text.split("\n")
        ends = (number for number, line in enumerate(lines) if number and line.strip() == _RULE)
        text = "\n".join(lines[: next(ends, 0)])
    documents, _ = read_documents(text, file, notes)
    table = documents[0] if documents else None
    if not isinstance(table, Table):
        return Card(path, AgentText(name=_stem(path, file)))
    named = next(leaves(table.get("name")), None) or _stem(path, file)
    agent = replace(
        _servers(table),
        name=Name(named.text.strip().replace(" ", "_"), named.where),
        is_default=_is_true(table, "default"),
        is_tool_only=_is_true(table, "tool_only"),
        has_default_model=_asks_default_model(table),
        skills=tuple(leaves(table.get("skills"))),
    )
    references = tuple(
        (key, name) for key in REFERENCES for name in leaves(table.get(key)) if name.text.strip()
    )
    return Card(path, agent, references)


def _stem(path: Path, file: str) -> Name:
    return Name(path.stem.replace(" ", "_"), Where(file))


def _asks_default_model(table: Table) -> bool:
    """Whether an agent of this card asks a model and the card names none."""
    kind = next(leaves(table.get("type")), None)
    if kind is not None and kind.text.strip().casefold().replace("-", "_") not in _ASK_MODELS:
        return False
    return not any(name.text.strip() for name in leaves(table.get("model")))


def _is_true(table: Table, key: str) -> bool:
    leaf = table.get(key)
    return isinstance(leaf, Leaf) and leaf.value is True


def _servers(table: Table) -> AgentText:
    model = next(leaves(table.get("model")), None)
    if CONNECT in table.entries:
        return AgentText(model=model)
    filters = tuple(_filters(table))
    return AgentText(tuple(leaves(table.get("servers"))), filters, model)


def _filters(table: Table) -> Iterator[tuple[Name, tuple[Name, ...]]]:
    for kind in FILTERS:
        given = table.get(kind)
        for name, entry in given.entries.items() if isinstance(given, Table) else ():
            yield Name(name, entry.where), tuple(leaves(entry.node)) if kind == "tools" else ()
