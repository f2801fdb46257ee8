"""Where we wrap a function of fast-agent: each hook on its own, each exactly once (SPEC PR-29).

Whether a hook is installed is read from the functions that stand on its target, never from one flag for
all of them: installing again, or installing another one later, can neither double a hook nor hide one.
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

    ``name`` is the hook's identity. ``parameters`` are the names of the target's parameters as we know
    them, in order; ``wrap`` gets the function that stands there and returns the one to put in its place,
    a coroutine function where the target is one.
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
# By the function itself, not by an attribute of it: ``functools.wraps`` copies attributes to others.
_ours: Final[WeakKeyDictionary[Any, Hook]] = WeakKeyDictionary()


def install(hook: Hook) -> bool:
    """Put the hook in place; False when it is there already. Each is a record at DEBUG; ``tell`` names all.

    Raises Fault (CONFIG) when the target is gone, takes other parameters than the hook knows, or when
    what ``wrap`` gave cannot stand in its place. The target is then as it was.
    """
    with _lock:
        current = _current(hook)
        if any(found.name == hook.name for found in _marks(current)):
            return False
        replacement = _replacement(hook, current)
        setattr(hook.owner, hook.attribute, replacement)
        _untold.append(hook.name)
    log.debug("installed hook %s on %s", hook.name, hook.target, extra={"hook": hook.name})
    return True


def tell() -> None:
    """Name in one record, at INFO, the hooks that were installed since the last one; none without any."""
    with _lock:
        names = tuple(_untold)
        _untold.clear()
    if names:
        log.info("hooks installed in fast-agent: %s", ", ".join(names), extra={"hooks": names})


def uninstall(hook: Hook) -> bool:
    """Take the hook out again and leave the others on its target; False when it was not there. For tests.

    Raises Fault (CONFIG) when someone else has wrapped the target since: it cannot be taken apart then.
    """
    with _lock:
        current = _current(hook)
        stay: list[Hook] = []
        while (mark := _ours.get(current)) is not None:
            current = current.__wrapped__
            if mark.name != hook.name:
                stay.append(mark)
                continue
            for other in reversed(stay):
                current = _replacement(other, current)
            setattr(hook.owner, hook.attribute, current)
            return True
        if any(mark.name == hook.name for mark in _marks(current)):
            raise _fault(hook, "was wrapped by someone else since; take that out first")
        return False


def installed(owner: Any, attribute: str) -> tuple[str, ...]:
    """Names of the hooks on ``owner.attribute``, the outermost first, each as often as it is applied."""
    return tuple(mark.name for mark in _marks(vars(owner).get(attribute)))


def _marks(function: Any) -> Iterator[Hook]:
    while function is not None:
        if inspect.isfunction(function) and (mark := _ours.get(function)) is not None:
            yield mark
        function = getattr(function, "__wrapped__", None)


def _current(hook: Hook) -> Any:
    current = vars(hook.owner).get(hook.attribute)
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
