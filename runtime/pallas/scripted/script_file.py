"""A script's file, read and checked."""

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from ..config import ConfigError, Where
from ..config.field_types import Line, Loose, Maybe, MissingHint, refused
from ..config.file_model import FileModel
from ..config.files import shown
from ..config.notes import Notes
from ..config.section import Section
from ..config.tree import Items, Node, Table, as_written
from ..config.validation import validate
from ..config.yamlfile import read_table
from .script_rules import DEFAULT_MODEL, Refusal, RuleCall, Script, ScriptRule, When, no_answer
from .template import Template, TemplateError, parse_template

__all__ = ["Script", "load_script"]

_NO_RULES: Final = "is not a list of rules; write `- when: …` and `say: …` below it"
_NO_CALLS: Final = "is not a list of calls; write `- tool: NAME` and `arguments: {…}` below it"


def _list_or(problem: str) -> BeforeValidator:
    """A list; ``problem`` is what is said of anything else."""

    def check(value: Any) -> Any:
        if not isinstance(value, tuple):
            raise refused(problem)
        return value

    return BeforeValidator(check)


_Delay = Annotated[float, Field(ge=0, le=600)]
_Pace = Annotated[float, Field(ge=0, le=60)]


class CallEntry(FileModel):
    """A tool that the model calls."""

    tool: Annotated[Line, Field(examples=["docs__search"])]
    arguments: dict[str, Any] | None = None


class ErrorEntry(FileModel):
    """An HTTP error in place of an answer."""

    status: Annotated[int, Field(ge=400, le=599, examples=[429])]
    message: Annotated[str, Field(examples=["slow down"])]
    retry_after: Maybe[_Delay] = None


class ScriptRuleEntry(FileModel):
    """One rule."""

    when: When | None = None
    say: Maybe[str] = None
    call: Annotated[tuple[CallEntry, ...], _list_or(_NO_CALLS)] = ()
    delay: Maybe[_Delay] = None
    pace: Maybe[_Pace] = None
    error: ErrorEntry | None = None


class ScriptEntry(FileModel):
    """The whole file."""

    rules: Annotated[
        tuple[ScriptRuleEntry, ...],
        _list_or(_NO_RULES),
        MissingHint("required, for example `rules: [{when: {text: hello}, say: Hello!}]`"),
    ]
    delay: _Delay = 0.0
    pace: _Pace = 0.0
    models: Annotated[tuple[Loose, ...] | None, Field(examples=[["scripted"]])] = None


def load_script(path: Path) -> Script:
    """The script at ``path``. Raises ConfigError with every mistake in it, each with its line."""
    notes = Notes()
    # Named as the user would: most often from the folder that it is in.
    file = shown(Path.cwd(), path)
    script = None
    if not path.exists():
        notes.error(Where(file), "", "there is no such file", "scripted: in agents.yaml names it")
    elif table := read_table(path, file, notes, {}, lenient=True):
        script = _script(validate(ScriptEntry, Section(as_written(table), "", Where(file), notes)))
    mistakes = tuple(found for found in notes.sorted([file]) if found.level == "error")
    if mistakes or script is None:
        raise ConfigError(mistakes)
    return script


def _script(entry: ScriptEntry) -> Script:
    _refuse_empty(entry.at, "rules", _NO_RULES)
    rules = tuple(_RuleReader(rule, entry).read() for rule in entry.rules or ())
    asked = [rule.when.model for rule in rules if rule.when.model]
    named = entry.models or (DEFAULT_MODEL,)
    return Script((*rules, no_answer(entry.at.where.file)), tuple(dict.fromkeys([*named, *asked])))


def _refuse_empty(section: Section, key: str, problem: str) -> None:
    node = section.table.get(key)
    if isinstance(node, Items) and not node.items:
        section.refuse(key, problem)


class _RuleReader:
    """Makes a rule of its entry; ``script`` has the delay and pace of one that has none of its own."""

    def __init__(self, entry: ScriptRuleEntry, script: ScriptEntry) -> None:
        self._entry, self._script, self._section = entry, script, entry.at
        self._when = entry.when or When()

    def read(self) -> ScriptRule:
        section, entry, when = self._section, self._entry, self._when
        if not {"say", "call", "error"} & section.table.entries.keys():
            section.notes.error(section.where, section.path, "answers nothing", "add say, call or error")
        if "error" in section and ("say" in section or "call" in section):
            section.error("error", "is given beside say or call", "allowed: only error, or say and call")
        if when.tool and when.last == "user":
            when.at.error(
                "tool", "a user's message is not a tool's result", "leave it out, or write last: tool"
            )
        _refuse_empty(section, "call", _NO_CALLS)
        return ScriptRule(
            when=when,
            say=None if entry.say is None else self._text(section, "say", entry.say),
            calls=tuple(self._call(each) for each in entry.call),
            delay=self._script.delay if entry.delay is None else entry.delay,
            pace=self._script.pace if entry.pace is None else entry.pace,
            error=self._refusal(entry.error) if entry.error is not None else None,
            where=section.where,
        )

    def _text(self, section: Section, key: str, text: str | None) -> Template:
        """The text under ``key``, line breaks and all."""
        return self._template(text or "", section.key(key), section.place(key))

    def _template(self, text: str, key: str, where: Where) -> Template:
        try:
            return parse_template(text, self._when.pattern)
        except TemplateError as error:
            when = self._entry.when
            regex_refused = when is not None and "regex" in when.at and when.regex is None
            # What a refused regex would have had for groups is not known.
            if not (error.about_match and regex_refused):
                self._section.notes.error(where, key, error.problem, error.hint)
            return Template(())

    def _call(self, call: CallEntry) -> RuleCall:
        node = call.at.table.get("arguments")
        values = self._argument(node, call.at.key("arguments")) if isinstance(node, Table) else {}
        return RuleCall(call.tool or "", values)

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

    def _refusal(self, error: ErrorEntry) -> Refusal:
        message = self._text(error.at, "message", error.message)
        return Refusal(error.status or 500, message, error.retry_after)
