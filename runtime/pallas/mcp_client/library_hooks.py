"""Wrappers around functions of fast-agent: each hook by itself, each applied exactly once (PR-29).

Whether a hook is installed is read from the functions at its target, never from one flag for all of them:
installing again, or installing another one later, can neither double a hook nor hide one.
"""

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final
from weakref import WeakKeyDictionary

from pallas.model import Fault, FaultType

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hook:
    """A wrapper around the function ``owner.attribute``; ``owner`` is a module or a class.

    A static method stays one.

    ``name`` is the hook's identity. ``parameters`` are the expected names of the target's parameters, in
    order; ``wrap`` gets the current function and returns its replacement, a coroutine function if the
    target is one.
    """

    name: str
    owner: Any
    attribute: str
    parameters: tuple[str, ...]
    wrap: Callable[[Any], Any]

    @property
    def target(self) -> str:
        """The target's full name, as ``package.module.function``."""
        module = getattr(self.owner, "__module__", None)
        place = f"{module}.{self.owner.__qualname__}" if module else self.owner.__name__
        return f"{place}.{self.attribute}"


_lock = Lock()
_untold: Final[list[str]] = []
# Keyed by the function itself, not by an attribute: ``functools.wraps`` copies attributes to others.
_ours: Final[WeakKeyDictionary[Any, Hook]] = WeakKeyDictionary()


def install(hook: Hook) -> bool:
    """Put the hook in place; return False if it is there already. Logs at DEBUG; ``tell`` names all.

    Raises Fault (CONFIG) if the target is gone, takes other parameters than the hook expects, or if the
    function that ``wrap`` returned cannot replace it. The target is then unchanged.
    """
    with _lock:
        current = _current(hook)
        if any(found.name == hook.name for found in _marks(current)):
            return False
        replacement = _replacement(hook, current)
        is_static = isinstance(vars(hook.owner).get(hook.attribute), staticmethod)
        setattr(hook.owner, hook.attribute, staticmethod(replacement) if is_static else replacement)
        _untold.append(hook.name)
    log.debug("installed hook %s on %s", hook.name, hook.target, extra={"hook": hook.name})
    return True


def tell() -> None:
    """Log at INFO, in one record, the hooks that were installed since the last call; nothing without any."""
    with _lock:
        names = tuple(_untold)
        _untold.clear()
    if names:
        log.info("hooks installed in fast-agent: %s", ", ".join(names), extra={"hooks": names})


def installed(owner: Any, attribute: str) -> tuple[str, ...]:
    """Return the names of the hooks on ``owner.attribute``, outermost first, each as often as it is
    applied."""
    return tuple(mark.name for mark in _marks(vars(owner).get(attribute)))


def _marks(function: Any) -> Iterator[Hook]:
    while function is not None:
        if inspect.isfunction(function) and (mark := _ours.get(function)) is not None:
            yield mark
        function = getattr(function, "__wrapped__", None)


def _current(hook: Hook) -> Any:
    current = vars(hook.owner).get(hook.attribute)
    if isinstance(current, staticmethod):
        current = current.__func__
    if not inspect.isfunction(current):
        found = "is not there" if current is None else f"is a {type(current).__name__}, not a function"
        raise _fault(hook, found)
    return current


def _replacement(hook: Hook, current: Any) -> Any:
    found = tuple(inspect.signature(current).parameters)
    if found != hook.parameters:
        raise _fault(hook, f"takes ({', '.join(found)}), not ({', '.join(hook.parameters)})")
    replacement = hook.wrap(current)
    if not inspect.isfunction(replacement) or replacement is current:
        raise _fault(hook, "was given no function of its own to take its place")
    if inspect.iscoroutinefunction(replacement) != inspect.iscoroutinefunction(current):
        raise _fault(
            hook, "would no longer be awaited as before; both must be coroutine functions or neither"
        )
    functools.update_wrapper(replacement, current)
    _ours[replacement] = hook
    return replacement


def _fault(hook: Hook, problem: str) -> Fault:
    return Fault(
        FaultType.CONFIG,
        f"hook {hook.name}: {hook.target} {problem};"
        " install the release of fast-agent-mcp that this release of Pallas asks for",
    )
