"""``{{ name }}`` in the texts of a script: checked when the script is read, filled in for each answer."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pallas.bounds.picture_header import PictureHeader

from ..config.notes import allowed, did_you_mean
from .scripted_conversation import ScriptedConversation

type Value = str | int | float

VARIABLES: Final[Mapping[str, Callable[[ScriptedConversation], Value]]] = {
    "last": lambda seen: seen.newest,
    "user": lambda seen: seen.user,
    "first": lambda seen: seen.first,
    "turns": lambda seen: len(seen.users),
    "result": lambda seen: seen.result,
    "model": lambda seen: seen.model,
    "image.count": lambda seen: seen.images,
    "image.kind": lambda seen: (seen.picture or PictureHeader()).kind,
    "image.width": lambda seen: (seen.picture or PictureHeader()).width,
    "image.height": lambda seen: (seen.picture or PictureHeader()).height,
    "image.bytes": lambda seen: (seen.picture or PictureHeader()).bytes,
}
FILTERS: Final = ("json", "number", "quote")
_FAMILIES: Final = ("match", "results")
_SHOWN: Final = (*VARIABLES, "match.NAME", "match.0", "results.TOOL")
_PART: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_EXPRESSION: Final = re.compile(r"\s*([\w-]+(?:\.[\w-]+)*)\s*(?:\|\s*(\w+)\s*)?")


class TemplateError(ValueError):
    """A template that cannot be filled in: ``problem`` and ``hint`` in the words of a Mistake.

    ``about_match`` when it asks the rule's regex for what that does not have.
    """

    def __init__(self, problem: str, *hints: str, about_match: bool = False) -> None:
        super().__init__(problem)
        self.problem, self.hint = problem, "; ".join(hint for hint in hints if hint)
        self.about_match = about_match


@dataclass(frozen=True, slots=True)
class Facts:
    """The values to fill in: the conversation, and the match of the rule's ``regex`` if it has one."""

    seen: ScriptedConversation
    match: re.Match[str] | None = None


@dataclass(frozen=True, slots=True)
class Blank:
    """One ``{{ name | filter }}``."""

    name: str
    filter: str | None = None

    def value(self, facts: Facts) -> Value:
        """Return its value; text when a number was asked for and there is none."""
        value = self._plain(facts)
        match self.filter:
            case "json":
                return json.dumps(value, ensure_ascii=False)
            case "quote":
                return "\n".join(f"> {line}".rstrip() for line in str(value).strip().splitlines())
            case "number":
                return _number(value)
        return value

    def _plain(self, facts: Facts) -> Value:
        if reader := VARIABLES.get(self.name):
            return reader(facts.seen)
        family, _, key = self.name.partition(".")
        if family == "results":
            return "\n\n".join(result.text for result in facts.seen.results if result.tool == key)
        if facts.match is None:
            return ""
        return facts.match[int(key) if key.isdecimal() else key] or ""


@dataclass(frozen=True, slots=True)
class Template:
    """A text with blanks, in order."""

    parts: tuple[str | Blank, ...]

    def render(self, facts: Facts) -> str:
        """The text with every blank filled in."""
        return "".join(part if isinstance(part, str) else str(part.value(facts)) for part in self.parts)

    def value(self, facts: Facts) -> Value:
        """As ``render``, but a template that is one blank and nothing else keeps a number a number."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Blank):
            return self.parts[0].value(facts)
        return self.render(facts)


def parse_template(text: str, pattern: re.Pattern[str] | None) -> Template:
    """``text`` as a template of a rule whose ``regex`` is ``pattern``. Raises TemplateError."""
    parts: list[str | Blank] = []
    end = 0
    for found in _PART.finditer(text):
        _check_closed(text[end : found.start()])
        parts += [text[end : found.start()], _blank(found[1], pattern)]
        end = found.end()
    _check_closed(text[end:])
    parts.append(text[end:])
    return Template(tuple(part for part in parts if part != ""))


def fill(node: Any, facts: Facts) -> Any:
    """``node`` with every Template in it replaced by its value, at any depth."""
    match node:
        case Template():
            return node.value(facts)
        case Mapping():
            return {key: fill(value, facts) for key, value in node.items()}
        case tuple():
            return [fill(value, facts) for value in node]
        case _:
            return node


def _check_closed(text: str) -> None:
    if "{{" in text:
        raise TemplateError("{{ is opened and not closed", "write {{ name }}")


def _blank(inner: str, pattern: re.Pattern[str] | None) -> Blank:
    found = _EXPRESSION.fullmatch(inner)
    if found is None:
        raise TemplateError(f"{{{{{inner}}}}} is not a variable", "write {{ name }} or {{ name | json }}")
    name, used = found[1], found[2]
    if used is not None and used not in FILTERS:
        raise TemplateError(f"unknown filter {used}", allowed(FILTERS), did_you_mean(used, FILTERS))
    family, _, key = name.partition(".")
    if name not in VARIABLES and (family not in _FAMILIES or not key):
        raise TemplateError(f"unknown variable {name}", allowed(_SHOWN), did_you_mean(name, VARIABLES))
    if family == "match":
        _check_group(key, pattern)
    return Blank(name, used)


def _check_group(key: str, pattern: re.Pattern[str] | None) -> None:
    if pattern is None:
        raise TemplateError(f"match.{key} needs a regex", "add `regex:` to the rule's when", about_match=True)
    groups = [*pattern.groupindex, *(str(number) for number in range(pattern.groups + 1))]
    if key not in groups:
        raise TemplateError(
            f"the regex has no group {key}",
            allowed(groups),
            did_you_mean(key, pattern.groupindex),
            about_match=True,
        )


def _number(value: Value) -> Value:
    """A number where the text is one: whole when it can be."""
    text = str(value).strip().replace(",", "")
    for convert in (int, float):
        try:
            number: int | float = convert(text)
        except ValueError:
            continue
        # JSON has neither infinity nor NaN.
        return number if abs(number) < float("inf") else value
    return value
