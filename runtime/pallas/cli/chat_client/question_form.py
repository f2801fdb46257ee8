"""A form of a question, filled in line by line: one line for each field of its JSON Schema."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from pallas.safe_text import one_line

_SWITCH: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_NOTHING: Final = object()


class FormLines(Protocol):
    """Where the lines of a form come from."""

    async def read(self, prompt: str) -> str:
        """The next line. Raises EOFError."""
        ...


async def read_form(schema: Mapping[str, Any], lines: FormLines) -> dict[str, Any]:
    """Read a value for each field; an empty line leaves out a field that is not required. Raises EOFError.

    Fields have the types of MCP's elicitation: text, number, integer, yes or no, one of several, several of
    them.
    """
    properties = schema.get("properties")
    required = schema.get("required") or ()
    content: dict[str, Any] = {}
    for name, field in properties.items() if isinstance(properties, Mapping) else ():
        field = field if isinstance(field, Mapping) else {}
        prompt = _prompt(str(name), field, name in required)
        while True:
            try:
                value = meant(field, await lines.read(prompt), is_required=name in required)
            except ValueError as problem:
                prompt = f"  {problem}: "
                continue
            if value is not _NOTHING:
                content[name] = value
            break
    return content


def meant(field: Mapping[str, Any], line: str, *, is_required: bool) -> Any:
    """The value that a line stands for. Raises ValueError, which says what is expected."""
    text = line.strip()
    if not text:
        if "default" in field:
            return field["default"]
        if is_required and field.get("type") != "string":
            raise ValueError("it is required")
        return "" if is_required else _NOTHING
    choices = _choices(field)
    if field.get("type") == "array":
        return [_one_of(each.strip(), choices) for each in text.split(",") if each.strip()]
    if choices:
        return _one_of(text, choices)
    match field.get("type"):
        case "boolean":
            if text.lower() not in _SWITCH:
                raise ValueError("y or n")
            return _SWITCH[text.lower()]
        case "integer":
            return _number(int, text, "a whole number")
        case "number":
            return _number(float, text, "a number")
    return text


def _number(kind: type[int] | type[float], text: str, words: str) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(words) from None


def _choices(field: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """The values of a field that has a few of them, with their titles."""
    items = field.get("items")
    inner = items if field.get("type") == "array" and isinstance(items, Mapping) else field
    for keyword in ("oneOf", "anyOf"):
        found = [each for each in inner.get(keyword) or () if isinstance(each, Mapping) and "const" in each]
        if found:
            return [(each["const"], str(each.get("title") or each["const"])) for each in found]
    values = inner.get("enum") or ()
    names = inner.get("enumNames") or ()
    return [(value, str(names[at] if at < len(names) else value)) for at, value in enumerate(values)]


def _one_of(text: str, choices: list[tuple[Any, str]]) -> Any:
    if not choices:
        return text
    for number, (value, title) in enumerate(choices, 1):
        if text.lower() in (str(value).lower(), title.lower()) or text == str(number):
            return value
    raise ValueError("one of " + ", ".join(one_line(title, 40) for _, title in choices[:20]))


def _prompt(name: str, field: Mapping[str, Any], required: bool) -> str:
    label = one_line(str(field.get("title") or name), 80) + ("*" if required else "")
    kind = {"boolean": "y or n", "integer": "whole number", "number": "number"}.get(
        str(field.get("type")), ""
    )
    choices = ", ".join(
        f"{number} {one_line(title, 40)}" for number, (_, title) in enumerate(_choices(field), 1)
    )
    default = f"empty: {one_line(str(field['default']), 40)}" if "default" in field else ""
    about = one_line(str(field.get("description") or ""), 200)
    facts = "; ".join(part for part in (about, choices or kind, default) if part)
    return f"  {label}{f' ({facts})' if facts else ''}: "
