"""Plugins as they are loaded, and calls of their functions, each of which may fail alone."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import entry_points
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from pallas.safe_text import one_line

if TYPE_CHECKING:
    from pluggy import HookImpl, PluginManager

ENTRY_POINTS: Final = "pallas"
"""The group of entry points that plugins of installed packages are in."""
DEADLINE_S: Final = 60.0
"""Seconds that a function of a plugin has, unless it hears events."""
_MAX_WHY: Final = 300


@dataclass(frozen=True, slots=True)
class PluginProblem:
    """What is wrong with a plugin, on one line."""

    plugin: str
    problem: str

    def __str__(self) -> str:
        return f"plugin {self.plugin}: {self.problem}"


class PluginSet:
    """Plugins by name, in the order in which they were loaded."""

    def __init__(self) -> None:
        self.problems: list[PluginProblem] = []
        """Of plugins that could not be loaded, or whose functions failed, in their order."""
        self._manager: PluginManager | None = None  # pluggy is imported for the first plugin

    @property
    def names(self) -> tuple[str, ...]:
        """The plugins that were loaded."""
        return tuple(name for name, _ in self._manager.list_name_plugin()) if self._manager else ()

    def load(self, name: str, import_plugin: Callable[[], Any]) -> None:
        """Import a plugin. What it raises, or a function that fits no extension point, is a problem of it."""
        try:
            self._register(name, import_plugin())
        except (Exception, SystemExit) as error:
            self.refuse(name, f"cannot be loaded: {_reason(error)}")

    def calls(self, hook: str) -> Iterator[tuple[str, Callable[..., Any]]]:
        """Yield the plugins that have a function for ``hook``, with that, in the order of loading.

        It is called with all arguments of the hook, by name.
        """
        if self._manager is not None:
            for each in getattr(self._manager.hook, hook).get_hookimpls():
                yield each.plugin_name, partial(_with_own_arguments, each)

    def results[T](self, hook: str, read: Callable[[Any], T], **arguments: Any) -> Iterator[tuple[str, T]]:
        """Call the function of each plugin and yield what ``read`` makes of its result, unless that is None.

        A function that raises, as well as ``read``, or takes longer than 60 s, is a problem of its plugin.
        """
        for name, function in self.calls(hook):
            found: Future[T | None] = Future()
            work = partial(_call, found, read, partial(function, **arguments))
            Thread(target=work, name=f"plugin {name}", daemon=True).start()
            try:
                result = found.result(DEADLINE_S)
            except TimeoutError:
                self.refuse(name, f"{hook} did not return within {DEADLINE_S:g} s")
            except (Exception, SystemExit) as error:
                self.refuse(name, f"{hook} failed: {_reason(error)}")
            else:
                if result is not None:
                    yield name, result

    def refuse(self, name: str, problem: str) -> None:
        """Note what is wrong with a plugin."""
        self.problems.append(PluginProblem(one_line(name, 60), one_line(problem, _MAX_WHY)))

    def _register(self, name: str, plugin: Any) -> None:
        from pluggy import PluginManager

        from pallas import hookspecs

        if self._manager is None:
            self._manager = PluginManager(ENTRY_POINTS)
            self._manager.add_hookspecs(hookspecs)
        manager = self._manager
        if manager.has_plugin(name):
            raise ValueError("another plugin has this name")
        try:
            manager.register(plugin, name)
            manager.check_pending()
            if not manager.get_hookcallers(plugin):
                raise ValueError("it has no function with @hookimpl (see pallas.hookspecs)")
        except Exception:
            manager.unregister(name=name)
            raise


def _with_own_arguments(implementation: "HookImpl", **arguments: Any) -> Any:
    return implementation.function(*[arguments[each] for each in implementation.argnames])


def _call[T](found: "Future[T | None]", read: Callable[[Any], T], function: Callable[[], Any]) -> None:
    try:
        result = function()
        found.set_result(None if result is None else read(result))
    except BaseException as error:  # raised by who waits
        found.set_exception(error)


@cache
def installed_plugins() -> PluginSet:
    """The plugins of installed packages, loaded once for this process."""
    found = PluginSet()
    for entry_point in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.name):
        found.load(entry_point.name, entry_point.load)
    return found


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
