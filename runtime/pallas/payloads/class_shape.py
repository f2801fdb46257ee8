"""Read the shape of a dataclass, and the types that make instances of it (HC-23)."""

import dataclasses
import inspect
import types
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, Flag
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAliasType,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pallas.model import Fault, FaultType
from pallas.safe_text import one_line, sanitize

from .choice_values import chosen
from .field_shape import PayloadField, PayloadShape, problem
from .payload_faults import Misfit, shown
from .payload_limits import MAX_CHOICES, MAX_NESTED
from .scalars import SCALARS, Scalar

ALLOWED: Final = (
    "allowed are str, int, float, bool, Decimal, datetime, date, Literal, Enum, a dataclass, a list of one "
    "of them, and `X | None` of all but lists"
)
_PLAIN: Final[dict[object, str]] = {
    str: "str", int: "int", float: "float", bool: "bool",
    Decimal: "Decimal", datetime: "datetime", date: "date",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Derived:
    """A class and its shape; ``parts`` has the type that makes each field's values: a class, an Enum."""

    kind: type
    shape: PayloadShape
    parts: Mapping[str, "Derived | type[Enum]"]


def derived(kind: object) -> Derived:
    """Read a class. Raises Fault (CONFIG) with the class, the field, and the allowed types."""
    try:
        if not isinstance(kind, type):
            raise _Refused(f"{shown(kind)} cannot be a payload: it is not a class; give a dataclass")
        derived_class = _dataclass(kind, ())
    except _Refused as refused:
        raise Fault(FaultType.CONFIG, str(refused)) from None
    if wrong := problem(derived_class.shape):
        raise Fault(FaultType.CONFIG, f"{derived_class.shape.name} cannot be a payload: {wrong}")
    return derived_class


class _Refused(Exception):
    """The class cannot be a payload; the text is for its author."""


def _dataclass(kind: type, above: tuple[type, ...]) -> Derived:
    name = one_line(str(getattr(kind, "__name__", kind)), 100)
    if not dataclasses.is_dataclass(kind):
        raise _Refused(f"{name} cannot be a payload: it is not a dataclass; put @dataclass above it")
    if kind in above:
        raise _Refused(
            f"{name} cannot be a payload: it contains itself, so that a message could be endless; {ALLOWED}"
        )
    if len(above) >= MAX_NESTED:
        raise _Refused(
            f"{above[0].__name__} cannot be a payload: more than {MAX_NESTED} dataclasses inside one another"
        )
    for pseudo in getattr(kind, "__dataclass_fields__", {}).values():
        # Only this attribute of a dataclass has its InitVars.
        if str(getattr(pseudo, "_field_type", "")) == "_FIELD_INITVAR":
            raise _refusal(name, pseudo.name, "an InitVar is not carried by a message")
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception as error:
        raise _Refused(
            f"{name} cannot be a payload: its annotations cannot be resolved: {one_line(str(error), 150)}; "
            "what they name must be there at the top of the module"
        ) from None
    elements = getattr(kind, "ELEMENTS", {})
    if not isinstance(elements, Mapping):
        raise _Refused(f"{name} cannot be a payload: ELEMENTS is not a mapping of fields to elements")
    parts: dict[str, Derived | type[Enum]] = {}
    fields = []
    for field in dataclasses.fields(kind):
        if not field.init:
            raise _refusal(name, field.name, "with init=False no message can set it: make it a property")
        new_field, part = _field(
            name, field, hints[field.name], str(elements.get(field.name, field.name)), (*above, kind)
        )
        fields.append(new_field)
        if part is not None:
            parts[field.name] = part
    return Derived(kind, PayloadShape(name, tuple(fields), _doc(kind)), parts)


def _refusal(kind: str, field: str, why: str) -> _Refused:
    return _Refused(f"{kind}.{field} cannot be in a payload: {why}; {ALLOWED}")


def _doc(kind: type) -> str:
    written = inspect.cleandoc(kind.__doc__ or "")
    return "" if written.startswith(f"{kind.__name__}(") else sanitize(written, 2_000)


def _field(
    owner: str, field: "dataclasses.Field[Any]", hint: Any, element: str, above: tuple[type, ...]
) -> tuple[PayloadField, Derived | type[Enum] | None]:
    doc = str(field.metadata.get("description") or field.metadata.get("doc") or "")
    hint, annotated_doc = _bare(hint)
    optional, many = False, False
    if get_origin(hint) in (Union, types.UnionType):
        rest = [one for one in get_args(hint) if one is not type(None)]
        if len(rest) != 1 or len(rest) == len(get_args(hint)):
            raise _refusal(owner, field.name, f"{_shown(hint)} allows several types")
        optional = True
        hint, more = _bare(rest[0])
        annotated_doc = annotated_doc or more
    if hint is list or get_origin(hint) is list:
        if optional or not get_args(hint):
            why = "a list is empty rather than None" if optional else "a list needs the type of its items"
            raise _refusal(owner, field.name, f"{_shown(hint)}: {why}")
        many = True
        hint, more = _bare(get_args(hint)[0])
        annotated_doc = annotated_doc or more
    if get_origin(hint) is Literal and None in get_args(hint) and not many:
        optional = True
        hint = Literal[tuple(one for one in get_args(hint) if one is not None)]
    kind, part, choices = _type(owner, field.name, hint, above)
    payload_field = PayloadField(
        name=field.name,
        element=element,
        type=kind,
        many=many,
        optional=optional,
        choices=choices,
        enum=isinstance(part, type),
        doc=sanitize(doc or annotated_doc, 2_000),
    )
    return _with_default(owner, payload_field, field, part), part


def _bare(hint: Any) -> tuple[Any, str]:
    """Return a type without aliases and annotations, and its first text annotation, the description."""
    doc = ""
    for _ in range(20):
        if isinstance(hint, TypeAliasType):
            hint = hint.__value__
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif get_origin(hint) is Annotated:
            doc = doc or next((one for one in get_args(hint)[1:] if isinstance(one, str)), "")
            hint = get_args(hint)[0]
        else:
            break
    return hint, doc


def _type(
    owner: str, name: str, hint: Any, above: tuple[type, ...]
) -> tuple[Scalar | PayloadShape, Derived | type[Enum] | None, tuple[Any, ...]]:
    if isinstance(hint, type) and hint in _PLAIN:
        return SCALARS[_PLAIN[hint]], None, ()
    if get_origin(hint) is Literal:
        choices = tuple(get_args(hint))
        return _choice(owner, name, hint, choices, enum=False), None, choices
    if isinstance(hint, type) and issubclass(hint, Enum) and not issubclass(hint, Flag):
        choices = tuple(member.value for member in hint)
        return _choice(owner, name, hint, choices, enum=True), hint, choices
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        nested = _dataclass(hint, above)
        return nested.shape, nested, ()
    raise _refusal(owner, name, f"{_shown(hint)} is not a type that a field of a message can have")


def _choice(owner: str, name: str, hint: Any, choices: tuple[Any, ...], *, enum: bool) -> Scalar:
    kinds = {type(one) for one in choices}
    if kinds not in ({str}, {int}) or len(choices) > MAX_CHOICES:
        raise _refusal(
            owner, name, f"the values of {_shown(hint)} must all be str or all int, {MAX_CHOICES} at most"
        )
    try:
        return chosen(SCALARS[kinds.pop().__name__], choices, enum=enum)
    except Misfit as error:
        raise _refusal(owner, name, f"a value of {_shown(hint)} {error.what}") from None


def _shown(hint: Any) -> str:
    return one_line(hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint), 80)


def _with_default(
    owner: str,
    payload_field: PayloadField,
    field: "dataclasses.Field[Any]",
    part: Derived | type[Enum] | None,
) -> PayloadField:
    if field.default is not dataclasses.MISSING:
        return dataclasses.replace(
            payload_field,
            has_default=True,
            known=True,
            default=_default(owner, payload_field, field.default, part),
        )
    if field.default_factory is dataclasses.MISSING:
        return payload_field
    payload_field = dataclasses.replace(payload_field, has_default=True)
    # A factory may count, or read the clock. A default is known only if two calls agree and it contains no
    # time or measure. An empty list is known whatever its items are.
    if not payload_field.many or payload_field.optional:
        return payload_field
    try:
        first, second = field.default_factory(), field.default_factory()
    except Exception:
        return payload_field
    if type(first) is type(second) is list and not first and not second:
        return dataclasses.replace(payload_field, known=True, default=[])
    if not isinstance(payload_field.type, Scalar) or payload_field.type.name not in ("str", "int", "bool"):
        return payload_field
    one, two = (_default(owner, payload_field, value, part) for value in (first, second))
    return dataclasses.replace(payload_field, known=True, default=one) if one == two else payload_field


def _default(owner: str, field: PayloadField, value: Any, part: Derived | type[Enum] | None) -> Any:
    try:
        return _as_json(field, value)
    except Misfit as error:
        hint = ": write `X | None`" if value is None else ""
        why = f"its default {error.what}" + (f", expected {error.expected}" if error.expected else "") + hint
        raise _refusal(owner, field.name, why) from None


def _as_json(field: PayloadField, value: Any) -> Any:
    if field.many:
        if not isinstance(value, list):
            raise Misfit(f"is {shown(value)}", "a list")
        return [_one_as_json(field, item) for item in value]
    if value is None and field.optional:
        return None
    return _one_as_json(field, value)


def _one_as_json(field: PayloadField, value: Any) -> Any:
    if isinstance(field.type, Scalar):
        return field.type.to_json(field.type.of_python(value))
    return {one.name: _as_json(one, getattr(value, one.name, None)) for one in field.type.fields}
