"""Cards of fast-agent, and the cards that they refer to by name; nothing is loaded."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from .agent_text import CONNECT, FILTERS, AgentText, Name, leaves
from .files import is_file, is_folder, lost_link, shown
from .models import Mistake, Where
from .notes import Notes, allowed, did_you_mean, nearest, suggest
from .textfile import read_text
from .tree import Leaf, Table
from .yamlfile import read_documents

REFERENCES: Final = ("agents", "sequence", "fan_out", "fan_in", "generator", "evaluator", "worker")
"""Keys of a card that name other agents; each kind of card has some of them."""
_FILES: Final = ("messages", "function_tools")
"""Keys of a card that name files beside it."""
FOLDERS: Final = ("agent-cards", "tool-cards")
"""Folders in which fast-agent keeps cards."""
_ASK_MODELS: Final = frozenset({"agent", "smart", "router", "orchestrator", "iterative_planner"})
"""The types of cards that ask a model themselves."""
_MARKDOWN: Final = (".md", ".markdown")
_YAML: Final = (".yaml", ".yml")
SUFFIXES: Final = (*_MARKDOWN, *_YAML)
"""Of files that may be cards."""
_NO_CARDS: Final = re.compile(r"SKILL\.md|(agents|organism|fast-?agent(\.config|\.secrets)?)\.yaml")
"""Files that may be in a folder of cards and are none."""
_CARD_KEYS: Final = ("type", "name", "instruction", "model", "servers", "agents")
"""What a YAML file has one of that is a card: others may be beside it."""
_KEY: Final = re.compile(r"^[\"']?([\w-]{1,40})[\"']?[ \t]*:", re.MULTILINE)
_ALIKE: Final = 0.85
"""How alike a key is to one of these in the project's own folder, where ``services`` is no ``servers``."""
_RULE: Final = "---"
_END: Final = re.compile(r"-{3,}\s*")
"""What closes front matter to fast-agent: more dashes do, blanks before them do not."""
_DOTS: Final = re.compile(r"\.\.\.\s*")
_TOML_RULE: Final = "+++"
_BEGIN: Final = "begin it with a line ---, its keys and another line ---"
_TOML: Final = (
    "has front matter in TOML, which fast-agent reads with the package toml only",
    "write it as YAML between two lines ---",
)
_MOST: Final = 500
"""Files of a folder that are looked at."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card's file: its agent, and the agents that it names, each with the key."""

    path: Path
    agent: AgentText
    references: tuple[tuple[str, Name], ...] = ()
    table: Table | None = None
    """Its keys; None if there are none, or they cannot be read."""
    body: str = ""
    """What follows the keys of a card in Markdown."""
    beside: tuple[Path, ...] = ()
    """Files that it names: messages, and code of its tools."""
    mistakes: tuple[Mistake, ...] = ()
    """Why it cannot be read, and what its YAML should not have."""

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
        named = (path for each in self.cards for path in (each.path, *each.beside))
        return tuple(dict.fromkeys((*named, *(each.path for each in self.missing))))


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
    return tuple(path for path in found if _looked_at(path, path.name) is None)


def passed_over(root: Path, folder: Path) -> tuple[Mistake, ...]:
    """Why each file of a folder is not taken for a card that could be meant as one. Blocks; never raises.

    What the cards of the folder include or name is no such file. In the project's own folder other YAML and
    Markdown files are nothing special: only what looks like a card is reported there.
    """
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return ()
    notes, texts = Notes(), [_text(path) for path in card_files(folder)]
    for path in found[:_MOST]:
        mistake = _looked_at(path, shown(root, path), is_strict=folder != root)
        if isinstance(mistake, Mistake) and not any(path.name in text for text in texts):
            notes.warn(mistake.where, "", f"is not taken as a card: it {mistake.problem}", mistake.hint)
    if len(found) > _MOST:
        problem = f"has {len(found)} files: only the first {_MOST} are looked at"
        notes.warn(Where(shown(root, folder)), "", problem, "put the cards into a folder of their own")
    return notes.sorted([])


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
                missing.append(_missing(root, card, key, name, known))
                continue
            other = replace(other, agent=replace(other.agent, is_own=False))
            needed[name.text] = other
            waiting.append(other)
    return CardSet(tuple(own), tuple(needed.values()), tuple(missing))


def _missing(root: Path, card: Card, key: str, name: Name, known: list[str]) -> MissingCard:
    beside = card.path.with_name(f"{name.text}.md".replace("/", "_"))
    for path in (beside.with_suffix(each) for each in SUFFIXES):
        unfit = _looked_at(path, shown(root, path)) if is_file(path) else None
        if isinstance(unfit, Mistake):
            problem = f"{key} names {name.text}, and {unfit.where} is not a card: it {unfit.problem}"
            return MissingCard(name.where, (problem, unfit.hint), path)
    problem = f"{key} names {name.text}, and no card has that name"
    hint = allowed(known) or f"write {shown(root, beside)}"
    return MissingCard(name.where, (problem, hint, did_you_mean(name.text, known)), beside)


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


def _looked_at(path: Path, file: str, *, is_strict: bool = True) -> Mistake | Literal["other"] | None:
    """Why a file is not a card; None for a card, ``other`` where nobody expects one."""
    suffix = path.suffix.strip().casefold()
    if suffix not in SUFFIXES or _NO_CARDS.fullmatch(path.name) or is_folder(path):
        return "other"
    if words := lost_link(path):
        return Mistake(Where(file), "", words, "put the file there, or correct the link")
    notes = Notes()
    text = _card_text(path, file, notes)
    if text is None:
        return notes.sorted([])[0]
    if suffix in _MARKDOWN:
        if _begins_with_rule(text):
            return None
        first = next(_lines(text), "")
        if not (_like_a_key(first) if not is_strict else not path.stem.isupper()):
            return "other"
        return Mistake(Where(file, 1), "", *_without_front_matter(text))
    keys = _KEY.findall(text)
    if any(key in _CARD_KEYS for key in keys):
        return None
    near = next(filter(None, (nearest(key, _CARD_KEYS, 0.6 if is_strict else _ALIKE) for key in keys)), None)
    if near is None and not is_strict:
        return "other"
    problem = f"has none of the keys that a card begins with ({', '.join(_CARD_KEYS)})"
    return Mistake(
        Where(file, 1), "", problem, suggest(near) or "move files that are not cards to another folder"
    )


def _card_text(path: Path, file: str, notes: Notes) -> str | None:
    """The text as fast-agent reads it: any end of a line is one, and marks of byte order are left out."""
    text = read_text(path, file, notes)
    return None if text is None else re.sub("\r\n?", "\n", text.lstrip("\ufeff"))


def _text(path: Path) -> str:
    return _card_text(path, path.name, Notes()) or ""


def _lines(text: str) -> Iterator[str]:
    return (line.strip() for line in text.splitlines() if line.strip())


def _begins_with_rule(text: str) -> bool:
    """Whether a Markdown text is a card: its first line with text is a rule."""
    return next(_lines(text), "") in (_RULE, _TOML_RULE)


def _like_a_key(line: str) -> bool:
    found = _KEY.match(line)
    return found is not None and nearest(found[1], _CARD_KEYS, _ALIKE) is not None


def _read(path: Path, file: str) -> Card:
    notes = Notes()
    text, body = _card_text(path, file, notes) or "", ""
    if path.suffix.lower() not in _YAML:
        text, body = _halves(text, file, notes)
    documents, _ = read_documents(text, file, notes, last_wins=True)
    table = documents[0] if documents else None
    if not isinstance(table, Table):
        if table is None and not body and not notes.sorted([]):
            notes.error(Where(file), "", "is empty", "write `name: helper` and `instruction: ...` lines")
        elif table is not None:
            notes.error(table.where, "", "has no keys", "write `key: value` lines, such as `name: helper`")
        return Card(path, AgentText(name=_stem(path, file)), body=body, mistakes=notes.sorted([]))
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
    beside = tuple(
        path.parent / name.text.partition(":")[0] for key in _FILES for name in leaves(table.get(key))
    )
    return Card(path, agent, references, table, body, beside, notes.sorted([]))


def _halves(text: str, file: str, notes: Notes) -> tuple[str, str]:
    """The keys of a card in Markdown, from its first line, and what follows them."""
    lines = text.split("\n")
    begin = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if lines[begin].strip() == _TOML_RULE:
        if find_spec("toml") is None:
            notes.error(Where(file, begin + 1), "", *_TOML)
        return "", text  # left to fast-agent
    if lines[begin].strip() != _RULE:
        if not notes.sorted([]):
            notes.error(Where(file, 1), "", *_without_front_matter(text))
        return "", text
    end = next((number for number in range(begin + 1, len(lines)) if _END.fullmatch(lines[number])), None)
    within = range(begin + 1, end or len(lines))
    if (dots := next((number for number in within if _DOTS.fullmatch(lines[number])), None)) is not None:
        problem = "closes its front matter with a line ..., which fast-agent does not take"
        notes.error(Where(file, dots + 1), "", problem, "write --- there")
        return "", ""
    if end is None:
        hint = "write another line --- between its keys and the instruction"
        notes.error(Where(file, begin + 1), "", "opens its front matter and never closes it", hint)
        return "", ""
    return "\n".join(lines[:end]), "\n".join(lines[end + 1 :])


def _without_front_matter(text: str) -> tuple[str, str]:
    """The problem of a Markdown text that does not begin with a rule, and what to do."""
    rules = [number for number, line in enumerate(text.split("\n"), 1) if line.strip() in (_RULE, _TOML_RULE)]
    if len(rules) > 1:
        return "has text before its front matter", f"begin it with the line --- of line {rules[0]}"
    return "has no front matter", _BEGIN


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
