"""Rules for what is suspicious in the texts of servers. ``docs/policy.md`` describes each.

They are patterns and tables, no classifier: a text that avoids them is not reported, and a harmless one may
be. A finding changes nothing at run time.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from pallas.model.tool_lock import LockedKind, ToolFinding
from pallas.safe_text import one_line

from .invisible import bidirectional_in, invisible_in, name_of, visible
from .surface import Surface

BIDIRECTIONAL: Final = "bidirectional-character"
INVISIBLE: Final = "invisible-character"
LOOK_ALIKE: Final = "look-alike-name"
MIXED_SCRIPTS: Final = "mixed-scripts"
OTHER_TOOL: Final = "names-other-tool"

INSTRUCTIONS: Final[Mapping[str, str]] = {
    "ignore-previous": r"\b(?:ignore|disregard|forget|override)\b.{0,30}\b(?:previous|prior|above|earlier|all"
    r"|other|system)\b.{0,20}\b(?:instructions?|prompts?|rules?|messages?|directions?)\b",
    "hide-from-user": r"\b(?:do not|don'?t|never|without|avoid)\s+(?:tell|telling|mention|mentioning|inform"
    r"|informing|show|showing|notify|notifying|reveal|revealing)\b.{0,40}\buser\b",
    "important-tag": r"<\s{0,20}/?\s{0,20}(?:important|system|instructions?|secret|admin)\b[^>]{0,300}>",
    "call-order": r"\b(?:before|prior to|after|whenever|when)\s+(?:you\s+)?(?:us(?:e|ing)|call(?:ing)?"
    r"|invok(?:e|ing)|run(?:ning)?)\b.{0,60}\b(?:read|call|send|fetch|open|include|pass)\b",
    "reads-secrets": r"(?:~/\.(?:ssh|aws|cursor|config|netrc)\b|\bid_rsa\b|\bmcp\.json\b|(?<![\w.])\.env\b"
    r"|/etc/passwd\b)",
    "replaces-tool": r"\b(?:instead of|rather than|do not use|don'?t use|never use)\b.{0,40}"
    r"\b(?:tool|function)\b",
    "hidden-comment": r"<!--.{0,200}",
}
"""Instructions to the model in a description: the names of the rules with their patterns.

Their repetitions are bounded: a hostile text must not take longer than another one.
"""
_INSTRUCTIONS: Final = {
    name: re.compile(pattern, re.IGNORECASE | re.DOTALL) for name, pattern in INSTRUCTIONS.items()
}
MAX_SCANNED: Final = 64 * 1024
"""Characters of one text that are looked at for instructions; characters are looked for in all of it."""
MAX_FINDINGS: Final = 200
"""Findings of one server, of each kind of rules, that are returned."""
# Letters of other scripts, and digits, that are read as Latin letters. Unicode's table has thousands more.
_READ_AS: Final = {
    "a": "аα", "b": "вβ", "c": "с", "d": "ԁ", "e": "еёєε", "g": "ԍ", "h": "һ", "i": "іι", "j": "ј", "k": "кκ",
    "l": "ӏ1|", "m": "м", "n": "ηո", "o": "оο0օ", "p": "рρ", "q": "ԛ", "r": "г", "s": "ѕ", "t": "тτ",
    "u": "υս", "v": "ν", "w": "ԝω", "x": "хχ", "y": "уγ",
}  # fmt: skip
_LATIN: Final = {other: letter for letter, others in _READ_AS.items() for other in others}
_PAIRS: Final = (("rn", "m"), ("vv", "w"), ("cl", "d"))
_WORD: Final = re.compile(r"\w+")
_SHORTEST: Final = 5
"""Letters of a tool's name that counts where another server's text says it."""


def findings_of(surfaces: Mapping[str, Surface]) -> tuple[ToolFinding, ...]:
    """Return the findings in these servers, sorted by server. Takes a while for large ones."""
    found: set[ToolFinding] = set()
    for server, surface in surfaces.items():
        found.update(islice(_of_server(server, surface), MAX_FINDINGS))
    for source in (_look_alikes(surfaces), _other_tools(surfaces)):
        counts: Counter[str] = Counter()
        for finding in source:
            counts[finding.server] += 1
            if counts[finding.server] <= MAX_FINDINGS:
                found.add(finding)
    return tuple(sorted(found, key=lambda each: (each.server, each.what, each.name, each.rule, each.message)))


def skeleton(name: str) -> str:
    """Return what a name looks like: two that are read alike have the same."""
    seen = unicodedata.normalize("NFKC", name.replace("I", "l")).casefold()
    seen = "".join(_LATIN.get(each, each) for each in seen if not invisible_in(each))
    seen = "".join(each for each in unicodedata.normalize("NFD", seen) if not unicodedata.combining(each))
    for pair, letter in _PAIRS:
        seen = seen.replace(pair, letter)
    return seen


def _of_server(server: str, surface: Surface) -> Iterator[ToolFinding]:
    for what, name, texts in _things(surface):
        for text in (name, *texts):
            yield from _characters(server, what, name, text)
        if len(_scripts(name)) > 1:
            message = f"its name mixes letters of {' and '.join(sorted(_scripts(name)))}"
            yield _finding(MIXED_SCRIPTS, server, what, name, message)
        for text in texts:
            for rule, pattern in _INSTRUCTIONS.items():
                if match := pattern.search(text[:MAX_SCANNED]):
                    yield _finding(rule, server, what, name, f"tells the model what to do: {_excerpt(match)}")


def _things(surface: Surface) -> Iterator[tuple[LockedKind, str, tuple[str, ...]]]:
    """Everything that has texts, with them."""
    if surface.instructions:
        yield "instructions", "", (surface.instructions,)
    for what, items in surface.lists.items():
        for name, item in items.items():
            yield what, name, tuple(_texts(item))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield str(key)
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _characters(server: str, what: LockedKind, name: str, text: str) -> Iterator[ToolFinding]:
    if text.isascii() and text.isprintable():
        return
    for rule, words, found in (
        (BIDIRECTIONAL, "changes the direction of text", bidirectional_in(text)),
        (INVISIBLE, "holds characters that are not seen", invisible_in(text)),
    ):
        if found:
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            names = ", ".join(name_of(each) for each in found[:3])
            yield _finding(rule, server, what, name, f"{words}: {names}{more}")


def _scripts(name: str) -> frozenset[str]:
    """The scripts of the letters of a name, of those that are mistaken for one another."""
    found = (unicodedata.name(each, "").split(" ")[0].title() for each in name if each.isalpha())
    return frozenset(each for each in found if each in ("Latin", "Cyrillic", "Greek", "Armenian", "Cherokee"))


def _look_alikes(surfaces: Mapping[str, Surface]) -> Iterator[ToolFinding]:
    seen: dict[str, list[tuple[str, str]]] = {}
    for server, surface in surfaces.items():
        for name in surface.tools:
            seen.setdefault(skeleton(name), []).append((server, name))
    for alike in seen.values():
        ordered = sorted(alike)
        for server, name in alike if len({name for _, name in alike}) > 1 else ():
            if (found := next((each for each in ordered if each[1] != name), None)) is not None:
                there, other = found
                message = f"its name looks like {shown_name(other)} of {shown_name(there)}"
                yield _finding(LOOK_ALIKE, server, "tool", name, message)
    yield from _like_servers(surfaces)


def _like_servers(surfaces: Mapping[str, Surface]) -> Iterator[ToolFinding]:
    names: dict[str, list[str]] = {}
    for server in sorted(surfaces):
        names.setdefault(skeleton(server), []).append(server)
    for alike in names.values():
        for server in alike if len(alike) > 1 else ():
            other = next(each for each in alike if each != server)
            yield _finding(LOOK_ALIKE, server, "server", server, f"its name looks like {shown_name(other)}")


def _other_tools(surfaces: Mapping[str, Surface]) -> Iterator[ToolFinding]:
    """Texts that name a tool of another server: they may want to change how that one is used."""
    own = {server: {*surface.tools} for server, surface in surfaces.items()}
    for server, surface in surfaces.items():
        others = {
            name: there
            for there, names in own.items()
            for name in names
            if there != server and name not in own[server] and _is_telling(name)
        }
        for what, name, texts in _things(surface) if others else ():
            words = {word for text in texts for word in _WORD.findall(text[:MAX_SCANNED])}
            for other in sorted(words & others.keys()):
                message = f"names the tool {shown_name(other)} of {shown_name(others[other])}"
                yield _finding(OTHER_TOOL, server, what, name, message)


def _is_telling(name: str) -> bool:
    """Whether a name is no word of the language."""
    return len(name) >= _SHORTEST and ("_" in name or any(each.isupper() for each in name[1:]))


def _finding(rule: str, server: str, what: LockedKind, name: str, message: str) -> ToolFinding:
    return ToolFinding(rule, shown_name(server), what, shown_name(name), one_line(message, 300))


def _excerpt(match: re.Match[str]) -> str:
    return shown_name(" ".join(match[0].split()))


def shown_name(text: str) -> str:
    """Return a name as findings have it."""
    return one_line(visible(text), 120)
