"""Encodes the model's values as JSON and decodes them, for processes that watch a fleet from outside.

The JSON has the fields of the value; an event also has its kind in ``type``. An older Pallas ignores unknown
fields and does not decode events of an unknown kind.
"""

from collections.abc import Callable
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from pallas.model import (
    AgentChanged,
    AgentDetail,
    AuthHop,
    BackendChosen,
    Compacted,
    Event,
    Exchange,
    Fault,
    FaultType,
    FleetChanged,
    FleetSnapshot,
    HealthChanged,
    LoopBlocked,
    LoopMessage,
    LoopStopped,
    MessagePassed,
    ModelRetry,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    Reloaded,
    Rerouted,
    Routed,
    RunContinued,
    RunFinished,
    RunStarted,
    ServerMissing,
    SessionChanged,
    StepChanged,
    StepStarted,
    TaskChanged,
    TextDelta,
    TodoChanged,
    ToolEvent,
    ToolOutcome,
    VerdictBegun,
    VerdictReached,
)
from pallas.safe_text import sanitize

EVENTS: Final[dict[str, type[Event]]] = {
    kind.__name__: kind
    for kind in (
        FleetChanged, AgentChanged, HealthChanged, RunStarted, StepStarted, ToolEvent, TextDelta, AuthHop,
        LoopStopped, RunFinished, Notice, Reloaded, LoopBlocked, LoopMessage, Compacted,
        Routed, Rerouted, SessionChanged, TaskChanged, MessagePassed, TodoChanged, BackendChosen,
        ServerMissing, ModelRetry, RunContinued, QuestionAsked, QuestionAnswered, StepChanged,
        VerdictBegun, VerdictReached,
    )
}  # fmt: skip
"""The event classes by the name in ``type``."""

Value = FleetSnapshot | AgentDetail | ToolOutcome | tuple[Exchange, ...]
"""The values that ``encode`` takes."""


class Undecodable(Exception):
    """A document does not have the expected form. The message says where, and repeats nothing of it."""


def encode(value: Value) -> bytes:
    """A value as JSON. Text that cannot be encoded is made visible first."""
    kind: Any = tuple[Exchange, ...] if isinstance(value, tuple) else type(value)
    return dumps(_adapter(kind).dump_python(value))


def encode_as(kind: Any, value: Any) -> bytes:
    """A value as JSON by the given type, for a type with parameters (``Page[ThreadRecord]``)."""
    return dumps(_adapter(kind).dump_python(value))


def decode[T](kind: type[T], document: Any) -> T:
    """The value of ``kind`` from plain JSON values. Raises Undecodable."""
    try:
        value: T = _adapter(kind).validate_python(document)
    except ValidationError as error:
        raise _undecodable(getattr(kind, "__name__", str(kind)), error) from None
    return value


def encode_fields(value: Any) -> dict[str, Any]:
    """The fields of a model value as plain values for ``dumps``."""
    fields: dict[str, Any] = _adapter(type(value)).dump_python(value)
    return fields


def encode_clean(value: Any, *, without: set[str]) -> str:
    """A value whose texts are sanitised as JSON, ``without`` these fields."""
    return _adapter(type(value)).dump_json(value, exclude=without).decode()


def encode_sparse(value: Any) -> str:
    """A value as JSON without the fields that have their default."""
    return dumps(_adapter(type(value)).dump_python(value, exclude_defaults=True)).decode()


def encode_event(event: Event) -> dict[str, Any]:
    """An event as plain values for ``dumps``."""
    kind = type(event)
    return {"type": kind.__name__, **_adapter(kind).dump_python(event)}


def decode_event(document: Any) -> Event | None:
    """The event from plain JSON values, None for an unknown kind. Raises Undecodable."""
    if not isinstance(document, dict):
        raise Undecodable("an event is not a JSON object")
    kind = EVENTS.get(str(document.get("type", "")))
    return decode(kind, document) if kind is not None else None


def dumps(document: Any) -> bytes:
    """Plain values as JSON in UTF-8."""
    try:
        return to_json(document, inf_nan_mode="null")
    except (PydanticSerializationError, UnicodeEncodeError):
        return to_json(visible(document), inf_nan_mode="null")


def loads(text: str | bytes) -> Any:
    """The JSON in ``text``. Raises Undecodable."""
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise Undecodable(f"not JSON ({type(error).__name__})") from None


def visible(document: Any, form: Callable[[str], str] = sanitize) -> Any:
    """A copy of ``document`` with every text in it sanitised, or in another form; keys included."""
    if isinstance(document, str):
        return document if document.isascii() and document.isprintable() else form(document)
    if isinstance(document, dict):
        return {visible(name, form): visible(value, form) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [visible(value, form) for value in document]
    return document


def fault_of(document: Any, otherwise: str) -> Fault:
    """The Fault of a ``to_body`` document; for anything else INTERNAL with the message ``otherwise``."""
    body = document if isinstance(document, dict) else {}
    data = body.get("data")
    data = dict(data) if isinstance(data, dict) else {}
    kind, retryable = data.pop("type", None), data.pop("retryable", None)
    message, code = body.get("error"), body.get("code")
    if not isinstance(message, str) or kind not in {each.value for each in FaultType}:
        return Fault(FaultType.INTERNAL, otherwise)
    return Fault(
        FaultType(kind),
        sanitize(message, 4_000),
        retryable=retryable if isinstance(retryable, bool) else None,
        code=code if isinstance(code, int) else None,
        data=visible(data),
    )


_adapters: Final[dict[Any, TypeAdapter[Any]]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    # Building an adapter takes milliseconds; it is harmless if two threads build the same one.
    adapter = _adapters.get(kind)
    if adapter is None:
        adapter = _adapters[kind] = TypeAdapter(kind)
    return adapter


def _undecodable(name: str, error: ValidationError) -> Undecodable:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return Undecodable(sanitize(f"{name}{'.' + where if where else ''}: {first['msg']}", 300))
