"""The look of a field: its name, its value, and the mistake in it."""

from typing import Final

from ...forms import ABSENT, FieldKind, FormRow
from ...forms.json_text import brief
from ...text import Glyphs, Line, Part, count, cropped, fit, right, width_of, wrapped
from ..tones import DIM, KEY, STRONG

_LABEL_MOST: Final = 28
_WRONG: Final = "$text-error"
_MASK: Final = "••••••"


def form_line(row: FormRow, reason: str, width: int, glyphs: Glyphs) -> Line:
    """Return one field in ``width`` cells; ``reason`` is the mistake in it."""
    if row.more:
        return cropped((("  " * row.depth + f"  {glyphs.ellipsis} ", DIM), (row.label, DIM)), width)
    fold = (glyphs.open if row.opened else glyphs.closed) if row.foldable else " "
    lead = "  " * row.depth + fold + " "
    label = row.label + ("*" if row.required else "")
    kind = kind_of(row)
    room = min(_LABEL_MOST, max(10, width // 3))
    name = fit(label, room, glyphs)
    parts: list[Part] = [(lead, DIM), (name + " ", STRONG if row.required else "" if row.known else DIM)]
    left = width - width_of(tuple(parts))
    if reason:
        value = fit(
            _value(row, glyphs)[0], min(left, max(8, width_of(((_value(row, glyphs)[0], ""),)))), glyphs
        )
        parts += [(value, _value(row, glyphs)[1]), (f"  {reason}", _WRONG)]
        return cropped(tuple(parts), width)
    text, style = _value(row, glyphs)
    tail = right(kind, len(kind) + 1)
    if left > len(tail) + 12:
        parts += [(fit(text, left - len(tail), glyphs), style), (tail, DIM)]
    else:
        parts.append((fit(text, left, glyphs), style))
    return cropped(tuple(parts), width)


def _value(row: FormRow, glyphs: Glyphs) -> tuple[str, str]:
    if row.chooser is not None and not row.path:
        return variant_name(row), KEY
    if row.value is ABSENT:
        if row.required:
            return "required", "$text-warning"
        default = row.shape.default
        return ("not sent" if default is ABSENT else f"not sent; default {brief(default, 80)}"), DIM
    if row.shape.secret and isinstance(row.value, str) and row.value:
        return (_MASK if glyphs.dot != "-" else "******"), ""
    return brief(row.value), ""


def variant_name(row: FormRow) -> str:
    """The variant that the field has: its title, else its kind."""
    if row.chooser is None:
        return ""
    name = row.shape.title or row.shape.kind.value
    return f"{row.variant + 1} of {len(row.chooser.variants)}: {name}"


def kind_of(row: FormRow) -> str:
    """What goes into the field, in a few words."""
    shape = row.shape
    kind = {
        FieldKind.CHOICE: f"{len(shape.choices)} choices",
        FieldKind.TEXT: "text",
        FieldKind.BOOLEAN: "yes or no",
    }.get(shape.kind, shape.kind.value)
    if shape.kind is FieldKind.CHOICE and len(shape.choices) == 1:
        kind = "fixed"
    nullable = shape.nullable or (row.chooser is not None and row.chooser.nullable)
    return kind + (" or null" if nullable else "")


def hint_lines(row: FormRow | None, reason: str, width: int, height: int) -> list[Line]:
    """Return the facts about the selected field, and the keys that change it."""
    if row is None or height <= 0:
        return []
    lines: list[Line] = []
    if row.more:
        lines += [((line, DIM),) for line in wrapped("2 has everything, as JSON.", width)]
        return lines[:height]
    shape = row.shape
    if reason:
        lines += [((line, _WRONG),) for line in wrapped(f"{row.label}: {reason}", width)]
    words = [word for word in (shape.title, shape.limits) if word]
    facts = [kind_of(row), *(word for word in words if row.chooser is None or word != shape.title)]
    if not row.known:
        facts.insert(0, "not in the tool's schema")
    if row.chooser is not None:
        facts.insert(0, variant_name(row))
    lines.append(((fit(", ".join(facts), width).rstrip(), DIM),))
    keys = [(KEY, key, word) for key, word in keys_of(row)]
    line: list[Part] = []
    for style, key, word in keys:
        if width_of(tuple(line)) + len(key) + len(word) + 3 > width:
            break
        line += [(key, style), (f" {word}  ", DIM)]
    room = height - len(lines) - 1
    if shape.description and room > 0:
        lines += [((one, ""),) for one in wrapped(shape.description, width)[:room]]
    return [*lines[: height - 1], tuple(line)]


def keys_of(row: FormRow) -> list[tuple[str, str]]:
    """The keys that do something to a field."""
    shape, found = row.shape, []
    held = row.value is not ABSENT
    if not row.path:
        return [("enter", "choose the variant")]
    if shape.kind is FieldKind.BOOLEAN:
        found.append(("space", "yes, no"))
    elif shape.kind is FieldKind.CHOICE:
        found += [("enter", "choose"), ("space", "next")]
    elif row.foldable:
        found.append(("enter", "fold" if row.opened else "open"))
        if shape.kind is FieldKind.ARRAY:
            found.append(("a", "add an item"))
        elif shape.more is not None:
            found.append(("a", "add a field"))
    else:
        found.append(("enter", "write"))
    if row.chooser is not None:
        found.append(("v", "variant"))
    if shape.kind is FieldKind.TEXT:
        found.append(('"', "empty text"))
    if shape.nullable or (row.chooser is not None and row.chooser.nullable):
        found.append(("n", "null"))
    if shape.default is not ABSENT:
        found.append(("d", "default"))
    if held:
        found.append(("delete", "remove" if row.is_item else "do not send"))
    found.append(("e", "as JSON"))
    return found


def summary(mistakes: int, note: str) -> str:
    """The state of the whole form in a few words."""
    if mistakes:
        return f"{count(mistakes, 'field is', 'fields are')} not as the schema says"
    return note
