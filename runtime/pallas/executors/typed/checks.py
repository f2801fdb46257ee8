"""What may be a typed handler, and what may be its payload: refused before any of it runs (HC-1, X8)."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import is_dataclass
from functools import partial
from typing import Any, Final

from pallas.contract import HandlerMetadata, HandlerResponse
from pallas.model import Fault, FaultType
from pallas.model.safe_text import one_line

Handler = Callable[[Any, HandlerMetadata], Awaitable[Any]]

_SHAPE: Final = "async def {}(payload, metadata)"
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAME_ONE: Final = "name a dataclass of yours: `payload: module:Class`"
_OURS: Final = frozenset({HandlerMetadata, HandlerResponse})


def check_handler(found: Any, name: str) -> Handler:
    """What was found, if it is ``async def`` and takes a payload and metadata. Raises Fault (CONFIG).

    A ``partial``, a method, and an object whose call is ``async def`` will do. ``name`` is how a person would
    find it.
    """
    if inspect.isclass(found):
        raise _wrong(name, "is a class", f"name a function: `{_SHAPE.format('handle')}`")
    if not callable(found):
        raise _wrong(name, f"is {_a(found)} and no function", f"write `{_SHAPE.format('handle')}`")
    plain = code_of(found)
    shape = _SHAPE.format(getattr(plain, "__name__", "handle"))
    if inspect.isasyncgenfunction(plain) or inspect.isgeneratorfunction(plain):
        raise _wrong(name, "is a generator", f"write `{shape}` without `yield` and return a message")
    if not inspect.iscoroutinefunction(plain):
        raise _wrong(
            name,
            "is not asynchronous",
            f"write `{shape}`; it is not called as it is, and not wrapped. For code that blocks use "
            "`await asyncio.to_thread(...)` in it",
        )
    _check_arguments(found, name, shape)
    handler: Handler = found
    return handler


def code_of(found: Any) -> Any:
    """The function behind a handler: of a ``partial``, of an object that is called, of a wrapper."""
    while isinstance(found, partial):
        found = found.func
    if not inspect.isroutine(found):
        found = getattr(type(found), "__call__", found)  # noqa: B004 - the function itself is wanted
        while isinstance(found, partial):
            found = found.func
    return found


def check_payload(found: Any, name: str) -> type:
    """What was found, if it is a dataclass. Raises Fault (CONFIG)."""
    if not inspect.isclass(found):
        raise _wrong(name, f"is {_a(found)} and no class", _NAME_ONE, "payload")
    if found in _OURS:
        raise _wrong(name, "is no payload", _NAME_ONE, "payload")
    if not is_dataclass(found):
        raise _wrong(name, "is no dataclass", f"write `@dataclass` above `class {found.__name__}`", "payload")
    return found


def _check_arguments(found: Any, name: str, shape: str) -> None:
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        raise _wrong(name, "does not say what it takes", f"write `{shape}`") from None
    positional = [each.name for each in parameters if each.kind in _POSITIONAL]
    required = [
        each.name
        for each in parameters
        if each.kind is inspect.Parameter.KEYWORD_ONLY and each.default is inspect.Parameter.empty
    ]
    if len(positional) == 1:
        raise _wrong(
            name, f"takes only {positional[0]} and no metadata", f"write `{shape}`; metadata is not optional"
        )
    if len(positional) != 2 or required:
        given = ", ".join([*positional, *(f"{each}=" for each in required)]) or "nothing by position"
        raise _wrong(name, f"takes ({one_line(given, 120)})", f"write `{shape}`: it is given these two alone")


def _a(found: Any) -> str:
    return f"of type {one_line(type(found).__name__, 60)}"


def _wrong(name: str, problem: str, hint: str, what: str = "handler") -> Fault:
    return Fault(FaultType.CONFIG, f"{what} {one_line(name, 200)} {problem}; {hint}")
