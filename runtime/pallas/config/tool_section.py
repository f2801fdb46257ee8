"""``tools:`` and ``approvals:``: which calls are made, which a person is asked about, and which are not."""

from typing import Annotated, Any, Final

from pydantic import Discriminator, Field, Tag

from pallas.model.argument_conditions import condition_of
from pallas.model.tool_rules import ToolHint, ToolPattern, ToolRuleSet

from .field_types import CHOICE, FileValue, Line, Maybe, Word
from .file_model import FileModel, Given, present
from .tree import Items

MAX_ENTRIES: Final = 200


def _text_or_mapping(value: Any) -> str:
    return "mapping" if isinstance(value, tuple | Given) else "text"


class ToolEntry(FileModel):
    """Tools by name, if the arguments of a call and the tool's hints fit."""

    tool: Annotated[Line, Field(examples=["shop__refund"])]
    """A pattern of ``server__tool`` or ``agent:NAME``; ``*`` stands for any text."""
    when: Annotated[dict[str, Word] | None, Field(max_length=20, examples=[{"amount": "> 100"}])] = None
    """Conditions on arguments by their path: ``> 100``, ``== "EUR"``, ``in [a, b]``, ``matches REGEX``."""
    hint: Maybe[Annotated[ToolHint, CHOICE]] = None
    """Only tools that are ``destructive`` or ``read_only``, as ``trusted_servers`` say of theirs."""


_Entry = Annotated[
    Annotated[Line, Tag("text")] | Annotated[ToolEntry, Tag("mapping")], Discriminator(_text_or_mapping)
]
_Entries = Annotated[tuple[_Entry, ...] | None, Field(max_length=MAX_ENTRIES)]


class ToolsSection(FileModel):
    """What is done with calls of tools and agents: ``deny`` is looked at first, then ``ask``, ``allow``."""

    allow: Annotated[_Entries, Field(examples=[["docs__*", "agent:research"]])] = None
    """The only calls that are made; without it all that are not denied."""
    ask: Annotated[_Entries, Field(examples=[["crm__delete_*"]])] = None
    """Calls that wait until a person says yes."""
    deny: Annotated[_Entries, Field(examples=[["*__drop_*"]])] = None
    """Calls that are never made. The model does not see a tool that is denied whatever its arguments are."""


class ApprovalsSection(FileValue):
    """How questions to people wait for their answer."""

    timeout: Annotated[float, Field(ge=1, le=7 * 86_400.0)] = 3_600.0
    """Seconds that a question is open; then the call is not made, and the model gets an error."""


def tool_rules_of(given: ToolsSection | None, whose: str) -> ToolRuleSet | None:
    """The rules of ``tools:``; notes what is wrong in a condition. None where there are none."""
    if given is None:
        return None
    allow = None if given.allow is None else _patterns(given, "allow", given.allow)
    return ToolRuleSet(allow, _patterns(given, "ask", given.ask), _patterns(given, "deny", given.deny), whose)


def _patterns(section: ToolsSection, key: str, entries: Any) -> tuple[ToolPattern, ...]:
    node = section.at.table.get(key)
    if not isinstance(node, Items) or not entries:
        return ()
    places = [item.where for _, item in present(node)]
    return tuple(_pattern(each, str(where)) for each, where in zip(entries, places, strict=True))


def _pattern(entry: Any, where: str) -> ToolPattern:
    if not isinstance(entry, ToolEntry):
        return ToolPattern(str(entry), where=where)
    conditions = []
    when = entry.at.section("when")
    for path, text in (entry.when or {}).items():
        try:
            conditions.append(condition_of(path, text))
        except ValueError as error:
            if when is not None:
                when.refuse(path, str(error))
    return ToolPattern(entry.tool or "*", tuple(conditions), entry.hint, where)
