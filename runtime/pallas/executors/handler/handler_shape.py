"""Finds a handler's methods, and refuses an unusable handler before any of it runs (DR-26)."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pallas.handlers import PromptRequest, Session
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

Prompt = Callable[[PromptRequest], Awaitable[Any]]
Stream = Callable[[PromptRequest], AsyncIterator[Any] | Awaitable[AsyncIterator[Any]]]

_NAMES: Final = {
    "prompt": ("prompt",),
    "stream": ("stream",),
    "on_session_create": ("on_session_create", "onSessionCreate"),
    "on_session_close": ("on_session_close", "onSessionClose"),
    "cancel": ("cancel",),
}
_ARGUMENTS: Final = {
    "prompt": ("request",),
    "stream": ("request",),
    "on_session_create": ("session",),
    "on_session_close": ("session", "reason"),
    "cancel": ("session",),
}
MAX_CAPABILITIES: Final = 50


@dataclass(frozen=True, slots=True)
class HandlerMethods:
    """A handler's methods by purpose, None for those it lacks."""

    handler: Any
    prompt: Prompt | None
    stream: Stream | None
    created: Callable[[Session], Awaitable[Any]] | None
    closed: Callable[[Session, str], Awaitable[Any]] | None
    cancel: Callable[[Session], Awaitable[Any]] | None
    capabilities: tuple[str, ...] = ()
    vision: bool = False


def shape_of(handler: Any, name: str) -> HandlerMethods:
    """Return the methods of a handler, or of an ``async def`` by itself. Raises Fault (CONFIG) if it cannot
    work.

    ``name`` is the handler's name in errors.
    """
    if inspect.isclass(handler):
        raise _wrong(name, "is a class", f"give an object of it: {handler.__name__}()")
    if inspect.isroutine(handler):
        return _of_function(handler, name)
    found = {key: _method(handler, key, name) for key in _NAMES}
    if found["prompt"] is None and found["stream"] is None:
        raise _wrong(
            name,
            f"has neither prompt nor stream ({type(handler).__name__})",
            "write `async def prompt(self, request)`, which returns the answer's text",
        )
    return HandlerMethods(
        handler,
        found["prompt"],
        found["stream"],
        found["on_session_create"],
        found["on_session_close"],
        found["cancel"],
        _capabilities(handler, name),
        bool(getattr(handler, "vision", False)),
    )


def _of_function(function: Any, name: str) -> HandlerMethods:
    """Return a function that answers as methods: ``async def``, with or without ``yield``."""
    streams = inspect.isasyncgenfunction(function)
    _check(function, "prompt", f"{name} ({function.__name__})", streams=streams)
    prompt, stream = (None, function) if streams else (function, None)
    vision = bool(getattr(function, "vision", False))
    return HandlerMethods(function, prompt, stream, None, None, None, _capabilities(function, name), vision)


def _method(handler: Any, key: str, name: str) -> Any:
    for each in _NAMES[key]:
        found = getattr(handler, each, None)
        if found is None:
            continue
        if not callable(found):
            raise _wrong(name, f"has a {each} that cannot be called", f"write `async def {each}(...)`")
        _check(found, key, f"{name}: {each}", streams=key == "stream")
        return found
    return None


def _check(function: Any, key: str, what: str, *, streams: bool) -> None:
    plain = function
    while isinstance(plain, partial):
        plain = plain.func
    if not inspect.isroutine(plain):
        plain = getattr(plain, "__call__", plain)  # noqa: B004 - an object whose call may be a coroutine
    arguments = _ARGUMENTS[key]
    if streams and not (inspect.isasyncgenfunction(plain) or inspect.iscoroutinefunction(plain)):
        raise _wrong(
            what,
            "is not an async generator",
            f"write `async def {_called(plain)}({arguments[0]})` with `yield` in it; nothing in a fleet may "
            "block its loop",
        )
    if not streams and not inspect.iscoroutinefunction(plain):
        raise _wrong(
            what,
            "is not asynchronous",
            f"write `async def {_called(plain)}({', '.join(arguments)})`; for code that blocks use "
            "`await asyncio.to_thread(...)` in it",
        )
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        given = f"{len(arguments)} argument{'s' if len(arguments) > 1 else ''}"
        raise _wrong(what, f"does not take {given}", f"it is called with ({', '.join(arguments)})") from None
    except ValueError:  # it has no readable signature
        pass


def _called(function: Any) -> str:
    return str(getattr(function, "__name__", "prompt"))


def _capabilities(handler: Any, name: str) -> tuple[str, ...]:
    given = getattr(handler, "capabilities", ()) or ()
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise _wrong(name, "has capabilities that are not a list of words", 'write for example ("coding",)')
    words = list(given)
    if len(words) > MAX_CAPABILITIES or not all(isinstance(word, str) and word for word in words):
        raise _wrong(
            name,
            "has capabilities that are not a list of words",
            f"allowed: {MAX_CAPABILITIES} words at most",
        )
    return tuple(dict.fromkeys(one_line(word, 64) for word in words))


def _wrong(name: str, problem: str, hint: str) -> Fault:
    return Fault(FaultType.CONFIG, f"handler {one_line(name, 200)} {problem}; {hint}")
