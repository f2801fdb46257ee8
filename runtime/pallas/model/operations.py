"""Operations: what can be asked of a fleet. Each is declared once, as a method of ``FleetPort``.

The signature of such a method is the table entry. ``@operation`` adds what the wire needs: the HTTP method
and path below ``/api/v1/fleet``, the scope of the token and the deadline. The routes of the control API and
the requests of its client are derived from this; a port only defines how it carries an operation.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, wraps
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    Protocol,
    TypeAliasType,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from urllib.parse import quote, urlencode

REQUIRED: Final = inspect.Parameter.empty
"""Marks a parameter without a default."""

READ_ONLY: Final = "read-only: this token may only read"
"""The refusal of a change to a token that may only look."""

MAX_ID: Final = 200
"""Most characters of a path segment. The rest is cut off, since no name or id is longer."""


class TokenScope(StrEnum):
    """``read`` may look, ``texts`` may also read conversations, ``full`` may also make changes."""

    READ = "read"
    TEXTS = "texts"
    FULL = "full"

    @property
    def reads_texts(self) -> bool:
        """Whether it may read conversations and exchanges."""
        return self is not TokenScope.READ


@dataclass(frozen=True, slots=True)
class ArgumentRules:
    """Rules of the wire for an argument, besides its type. Used as ``Annotated[str, ArgumentRules(...)]``."""

    alias: str = ""
    """Its name in a query, where that is not the name of the parameter."""
    what: str = ""
    """What it must be, for the text of an error."""
    minimum: int = 0
    """The fewest characters. A smaller number counts as this one."""
    maximum: int | None = None
    """The most characters of a text, the largest number."""
    default: Any = REQUIRED
    """The default for HTTP clients, if callers in Python must pass a value."""
    shown: int = 80
    """Characters that a title shows; for a handle too few to use it."""
    log_field: str = ""
    """The field of the audit record that holds it."""
    is_agent: bool = False
    """It is the name of an agent of the fleet; another value is "not found"."""
    is_secret: bool = False
    """It is masked in every log record while the operation lasts."""


@dataclass(frozen=True, slots=True)
class OperationParameter:
    """One argument of an operation."""

    name: str
    type: Any
    default: Any
    """``REQUIRED`` if there is none."""
    place: Literal["path", "query", "body"]
    rules: ArgumentRules

    @property
    def wire_name(self) -> str:
        """Its name in a query or a body."""
        return self.rules.alias or self.name

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a ``Literal``; empty for any other type."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()


class _Port(Protocol):
    async def _call(self, operation: "Operation", arguments: dict[str, Any]) -> Any: ...
    def _send(self, operation: "Operation", arguments: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Operation:
    """One entry of the table."""

    function: Callable[..., Any] = field(repr=False)
    """The declared method: its name, parameters and result are those of the operation."""
    http_method: str
    path: str
    """The path below the control API's base; ``{name}`` is a parameter."""
    scope: TokenScope
    title: str
    """What it does, for the audit log; ``{name}`` is an argument."""
    result_key: str
    """The key of the result in the JSON response; empty if the result is the whole document."""
    deadline_s: float
    """Seconds within which the fleet must answer."""
    when_stopped: Any
    """The result of a local fleet that does not run; ``REQUIRED`` raises Fault."""

    def __post_init__(self) -> None:
        if (self.http_method == "GET") is (self.scope is TokenScope.FULL):
            raise TypeError(
                f"{self.name}: GET is for what needs no full token, other methods are for what does"
            )

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.function.__name__

    @property
    def waits(self) -> bool:
        """Whether the caller waits for the result.

        Otherwise it returns at once, and an event reports the outcome.
        """
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def result(self) -> Any:
        """The type of the result."""
        return self._hints["return"]

    @cached_property
    def parameters(self) -> tuple[OperationParameter, ...]:
        """Its arguments, in order."""
        declared = list(inspect.signature(self.function).parameters.values())[1:]
        return tuple(self._parameter(each) for each in declared)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments of a call by name, defaults included."""
        bound = inspect.signature(self.function).bind(None, *args, **kwargs)
        bound.apply_defaults()
        return dict(list(bound.arguments.items())[1:])

    def describe(self, arguments: Mapping[str, Any]) -> str:
        """The title with its arguments filled in: handles shortened, secrets left out."""
        title, shown = self.title, {}
        for each in self.parameters:
            text = "" if each.rules.is_secret else str(arguments[each.name])
            title = title if text else title.replace(f"{{{each.name}}}/", "")
            limit = each.rules.shown
            shown[each.name] = text if len(text) <= limit else f"{text[: limit - 1]}…"
        return title.format(**shown)

    def request(self, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """The path with query, and the JSON body, of a client's request."""
        path_values: dict[str, str] = {}
        query: dict[str, Any] = {}
        body: dict[str, Any] = {}
        for each in self.parameters:
            value = arguments[each.name]
            match each.place:
                case "path":
                    path_values[each.name] = quote(str(value), safe="")
                case "query":
                    query[each.wire_name] = int(value) if isinstance(value, bool) else value
                case "body":
                    body[each.wire_name] = dict(value) if isinstance(value, Mapping) else value
        path = self.path.format(**path_values)
        return f"{path}?{urlencode(query)}" if query else path, body or None

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.function, include_extras=True)

    def _parameter(self, declared: inspect.Parameter) -> OperationParameter:
        kind, rules = _split(self._hints[declared.name])
        if f"{{{declared.name}}}" in self.path:
            place: Literal["path", "query", "body"] = "path"
        else:
            place = "query" if self.http_method == "GET" else "body"
        default = declared.default if declared.default is not REQUIRED else rules.default
        return OperationParameter(declared.name, kind, default, place, rules)


def operation[F: Callable[..., Any]](
    route: str,
    *,
    scope: TokenScope = TokenScope.FULL,
    title: str = "",
    result_key: str = "",
    deadline_s: float = 30.0,
    when_stopped: Any = REQUIRED,
) -> Callable[[F], F]:
    """Declare a method as an operation, for example ``@operation("POST /threads/{thread}/rename")``.

    The method needs no body: the port's ``_call`` carries it out, or its ``_send`` if it is not a coroutine
    function.
    """
    http_method, path = route.split(" ")

    def declare(function: F) -> F:
        entry = Operation(
            function,
            http_method,
            path,
            scope,
            title or function.__name__,
            result_key,
            deadline_s,
            when_stopped,
        )
        if entry.waits:

            @wraps(function)
            async def call(self: _Port, *args: Any, **kwargs: Any) -> Any:
                return await self._call(entry, entry.bind(args, kwargs))
        else:

            @wraps(function)
            def call(self: _Port, *args: Any, **kwargs: Any) -> Any:
                self._send(entry, entry.bind(args, kwargs))

        call.operation = entry  # type: ignore[attr-defined]
        return cast(F, call)

    return declare


def operations_of(port: type) -> tuple[Operation, ...]:
    """All operations that a port class declares or inherits, in the order of their declaration."""
    found: dict[str, Operation] = {}
    for each in reversed(port.__mro__):
        for name, value in vars(each).items():
            if isinstance(entry := getattr(value, "operation", None), Operation):
                found[name] = entry
    return tuple(found.values())


def _split(hint: Any) -> tuple[Any, ArgumentRules]:
    """The type of an argument and its rules."""
    while isinstance(hint, TypeAliasType):
        hint = hint.__value__
    if get_origin(hint) is not Annotated:
        return hint, ArgumentRules()
    kind, *extras = get_args(hint)
    return kind, next((each for each in extras if isinstance(each, ArgumentRules)), ArgumentRules())
