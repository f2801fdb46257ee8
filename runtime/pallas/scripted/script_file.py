"""A script's file, read and checked."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ..config import ConfigError, Where
from ..config.files import shown
from ..config.notes import Notes
from ..config.section import Section
from ..config.tree import Items, Node, Table
from ..config.yamlfile import read_table
from .script_rules import DEFAULT_MODEL, Refusal, RuleCall, Script, ScriptRule, When, no_answer
from .template import Template, TemplateError, parse_template

__all__ = ["Script", "load_script"]

TOP_KEYS: Final = ("rules", "delay", "pace", "models")
RULE_KEYS: Final = ("when", "say", "call", "delay", "pace", "error")
WHEN_KEYS: Final = ("last", "tool", "text", "regex", "user", "system", "model", "images")
CALL_KEYS: Final = ("tool", "arguments")
ERROR_KEYS: Final = ("status", "message", "retry_after")
MAX_DELAY: Final = 600.0
MAX_PACE: Final = 60.0


def load_script(path: Path) -> Script:
    """The script at ``path``. Raises ConfigError with every mistake in it, each with its line."""
    notes = Notes()
    # Named as the user would: most often from the folder it stands in.
    file = shown(Path.cwd(), path)
    script = None
    if not path.exists():
        notes.error(Where(file), "", "there is no such file", "scripted: in agents.yaml names it")
    elif table := read_table(path, file, notes, {}, lenient=True):
        script = _script(Section(_as_written(table), "", Where(file), notes))
    mistakes = tuple(found for found in notes.sorted([file]) if found.level == "error")
    if mistakes or script is None:
        raise ConfigError(mistakes)
    return script


def _as_written(table: Table) -> Table:
    """``table`` without ``${VAR}`` expanded: a script holds Markdown and code, where that is plain text."""
    entries = {key: replace(entry, node=_plain(entry.node)) for key, entry in table.entries.items()}
    return replace(table, entries=entries)


def _plain(node: Node) -> Node:
    if isinstance(node, Table):
        return _as_written(node)
    if isinstance(node, Items):
        return replace(node, items=tuple(_plain(item) for item in node.items))
    if isinstance(node.value, str):
        return replace(node, value=node.raw, unset=(), expanded=False)
    return node


def _script(top: Section) -> Script | None:
    top.only(TOP_KEYS)
    node = top.table.get("rules") if top.need("rules", "[{when: {text: hello}, say: Hello!}]") else None
    if not isinstance(node, Items) or not node.items:
        if node is not None:
            top.error("rules", "is not a list of rules", "write `- when: …` and `say: …` below it")
        return None
    delay, pace = top.number("delay", 0, MAX_DELAY), top.number("pace", 0, MAX_PACE)
    base = ScriptRule(When(), delay=delay or 0.0, pace=pace or 0.0)
    sections = (
        top.section_of(item, f"rules[{number}]", item.where) for number, item in enumerate(node.items)
    )
    rules = tuple(_RuleReader(section, base).read() for section in sections if section is not None)
    named = [name for name, _ in top.texts("models", "[scripted]")] or [DEFAULT_MODEL]
    asked = [rule.when.model for rule in rules if rule.when.model]
    return Script((*rules, no_answer(top.where.file)), tuple(dict.fromkeys([*named, *asked])))


class _RuleReader:
    """Reads one rule; ``base`` has the delay and pace it takes over when it has none of its own."""

    def __init__(self, section: Section, base: ScriptRule) -> None:
        self._section, self._base = section, base
        self._regex: re.Pattern[str] | None = None
        self._regex_refused = False

    def read(self) -> ScriptRule:
        section = self._section
        section.only(RULE_KEYS)
        if not {"say", "call", "error"} & section.table.entries.keys():
            section.notes.error(section.where, section.path, "answers nothing", "add say, call or error")
        if "error" in section and ("say" in section or "call" in section):
            section.error("error", "stands beside say or call", "allowed: error alone, or say and call")
        when = self._when(section.section("when"))
        delay, pace = section.number("delay", 0, MAX_DELAY), section.number("pace", 0, MAX_PACE)
        return ScriptRule(
            when=when,
            say=self._text(section, "say") if "say" in section else None,
            calls=self._calls() if "call" in section else (),
            delay=self._base.delay if delay is None else delay,
            pace=self._base.pace if pace is None else pace,
            error=self._refusal(section.section("error")),
            where=section.where,
        )

    def _when(self, section: Section | None) -> When:
        if section is None:
            return When()
        section.only(WHEN_KEYS)
        last, tool = section.choice("last", ("user", "tool")), section.text("tool")
        if tool and last == "user":
            section.error("tool", "a user's message is no tool's result", "leave it out, or write last: tool")
        self._regex = self._pattern(section)
        return When(
            last=last,  # type: ignore[arg-type] # one of the two choices above
            tool=tool,
            text=_folded(section.text("text")),
            regex=self._regex,
            user=_folded(section.text("user")),
            system=_folded(section.text("system")),
            model=section.text("model"),
            images=section.flag("images"),
        )

    def _pattern(self, section: Section) -> re.Pattern[str] | None:
        text = section.text("regex")
        try:
            return None if text is None else re.compile(text, re.IGNORECASE)
        except re.PatternError as error:
            reason = error.msg if error.pos is None else f"{error.msg} at character {error.pos + 1}"
        except (OverflowError, RecursionError):
            reason = "it is too large"
        self._regex_refused = True
        section.error("regex", f"is not a regular expression: {reason}", "allowed: what Python's re takes")
        return None

    def _text(self, section: Section, key: str) -> Template:
        """The text under ``key``, line breaks and all."""
        node = section.table.get(key)
        text = section.text_of(node, section.key(key)) if node is not None else None
        return self._template(text or "", section.key(key), section.place(key))

    def _template(self, text: str, key: str, where: Where) -> Template:
        try:
            return parse_template(text, self._regex)
        except TemplateError as error:
            # What a refused regex would have had for groups is not known.
            if not (error.about_match and self._regex_refused):
                self._section.notes.error(where, key, error.problem, error.hint)
            return Template(())

    def _calls(self) -> tuple[RuleCall, ...]:
        section, node = self._section, self._section.table.get("call")
        if not isinstance(node, Items) or not node.items:
            hint = "write `- tool: NAME` and `arguments: {…}` below it"
            section.error("call", "is not a list of calls", hint)
            return ()
        paths = ((item, f"{section.key('call')}[{number}]") for number, item in enumerate(node.items))
        inner = (section.section_of(item, path, item.where) for item, path in paths)
        return tuple(self._call(each) for each in inner if each is not None)

    def _call(self, section: Section) -> RuleCall:
        section.only(CALL_KEYS)
        tool = section.text("tool") if section.need("tool", "docs__search") else None
        arguments = section.section("arguments")
        values = self._argument(arguments.table, arguments.path) if arguments else {}
        return RuleCall(tool or "", values)

    def _argument(self, node: Node, key: str) -> Any:
        """A part of the arguments as JSON has it, lists as tuples and texts as templates."""
        if isinstance(node, Table):
            entries = node.entries.items()
            return {name: self._argument(entry.node, f"{key}.{name}") for name, entry in entries}
        if isinstance(node, Items):
            return tuple(self._argument(item, f"{key}[{number}]") for number, item in enumerate(node.items))
        match node.value:
            case str(text):
                return self._template(text, key, node.where)
            case float(number) if not abs(number) < float("inf"):
                self._section.notes.error(node.where, key, "is not a number that JSON has", "quote it")
            case bool() | int() | float() | None:
                return node.value
            case _:
                hint = f'quote it: "{node.raw}"'
                self._section.notes.error(node.where, key, "is a date to YAML", hint)
        return None

    def _refusal(self, section: Section | None) -> Refusal | None:
        if section is None:
            return None
        section.only(ERROR_KEYS)
        status = section.integer("status", 400, 599) if section.need("status", "429") else None
        message = self._text(section, "message") if section.need("message", "slow down") else None
        retry_after = section.number("retry_after", 0, MAX_DELAY)
        return Refusal(status or 500, message or Template(()), retry_after)


def _folded(text: str | None) -> str | None:
    return None if text is None else text.casefold()
