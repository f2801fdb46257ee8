"""How a project's code finds its modules: by itself, while nothing else sees them.

The project's folder is not in ``sys.path``. Modules of a project are executed with an ``__import__`` of
their own, in their ``__builtins__``. It looks into the project's folder first, as Python does for a script.

A module of a project has its plain name in ``sys.modules``, unless something else can be imported by that
name: the standard library, an installed package, another project, another agent's folder. Then its top
package has a name such as ``types@1a2b3c4d``. Code that looks up the module of a class finds it by that.
"""

import builtins
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import cache_from_source, resolve_name, spec_from_file_location
from inspect import currentframe
from itertools import chain
from opcode import opmap
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pallas.model.module_name import marked_name, plain_name

# Never a project's, even where it is a checkout of ours.
_OURS: Final = frozenset({"pallas", "pallas_tui", "__main__"})
# Folders of libraries, which may be inside a project.
_LIBRARIES: Final = frozenset({"site-packages", "dist-packages", ".venv", "venv"})
_STANDARD_LIBRARY: Final = f"{Path(os.__file__).parent}{os.sep}"
_IMPORT_STATEMENT: Final = opmap["IMPORT_NAME"]
_SPAWNING: Final = "multiprocessing.spawn"
_LOGGING: Final = "logging.config"
_IMPORT: Final = builtins.__import__
_IMPORT_MODULE: Final = importlib.import_module
_EXECUTE: Final[Callable[[SourceFileLoader, ModuleType], None]] = SourceFileLoader.exec_module


class ProjectImporter:
    """The ``__import__`` of the modules that are first imported for ``agent`` of the project at ``root``.

    Folders that the agent's code adds to ``sys.path`` are searched for its own imports, before ``root``, and
    also when it is imported again. In ``sys.path`` they come last.
    """

    def __init__(self, root: Path, agent: str) -> None:
        _install()
        self.root = str(root)
        self.agent = agent  # whose the code is while it is imported, see ``code_owners``
        self.builtins = {**vars(builtins), "__import__": self}
        self._project = _projects.setdefault(self.root, _Project(self))
        self._added = self._project.added.setdefault(agent, [])
        self._names: dict[tuple[str, ...], str] = {}  # what ``name_of`` found
        self._is_loading = False

    def __call__(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,  # noqa: A002 - the names of Python's own
        locals: Mapping[str, Any] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """As Python's ``__import__``."""
        if not level:
            name = self._visible(name, self.name_of(name, fromlist or ()))
        token = _current.set(self)
        try:
            return _IMPORT(name, globals, locals, fromlist or (), level)
        finally:
            _current.reset(token)

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Import the agent's code in this block."""
        _known_entries.update(sys.path)
        self._is_loading = True
        token = _current.set(self)
        try:
            yield
            self._take_entries()
        finally:
            _current.reset(token)
            self._is_loading = False

    def import_module(self, name: str, *, configured: bool = False) -> ModuleType:
        """Import a module of the project, or another one if it has none of that name.

        A ``configured`` name may be that of a module that is built into Python.
        """
        name = self._visible(name, self.name_of(name, configured=configured))
        token = _current.set(self)
        try:
            return _IMPORT_MODULE(name)
        finally:
            _current.reset(token)

    def name_of(self, name: str, imported: Sequence[str] = (), *, configured: bool = False) -> str:
        """Return the name in ``sys.modules`` of what the project's code imports as ``name``.

        ``imported`` are the names that it wants of that module. Empty where only another project has it.
        """
        self._take_entries()
        key = (name, *imported)
        if (known := self._names.get(key)) is not None and known.partition(".")[0] in sys.modules:
            return known
        found = self._names[key] = self._found(name, imported, configured=configured)
        return found

    def _found(self, name: str, imported: Sequence[str], *, configured: bool) -> str:
        top, dot, rest = name.partition(".")
        if top in _OURS or (top in sys.builtin_module_names and not configured):
            return name
        spec = PathFinder.find_spec(top, self._folders())
        if spec is None:
            other = _tops.get(top)
            return name if other is None or other.importer.root == self.root else ""
        folder = _folder_of(spec)
        if spec.origin is None and not _has_any(spec, (rest.partition(".")[0],) if rest else imported):
            # A folder with other files; Python, too, prefers a package from anywhere.
            found = sys.modules.get(top)
            if (found is not None and not _is_in(found, folder, top)) or _is_elsewhere(top, folder):
                return name
        return f"{self._name_top(top, folder)}{dot}{rest}"

    @staticmethod
    def _visible(name: str, found: str) -> str:
        """Return ``found``, which ``name`` stands for. Raises ModuleNotFoundError where it is empty."""
        if not found:
            top = name.partition(".")[0]
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
        return found

    def covers(self, file: str) -> bool:
        """Whether it is a file of the project's code."""
        return any(
            file.startswith(f"{folder}{os.sep}") and _LIBRARIES.isdisjoint(Path(file[len(folder) :]).parts)
            for folder in self._folders()
        ) and not file.startswith(_STANDARD_LIBRARY)

    def _name_top(self, top: str, folder: str) -> str:
        """Return the name of the package or module ``top`` in ``folder``, which stays the same."""
        marked = marked_name(top, blake2b(folder.encode(), digest_size=4).digest())
        with _lock:
            found, owner = sys.modules.get(top), _tops.get(top)
            is_free = found is None or _is_in(found, folder, top)
            if owner is not None or marked in _tops:
                is_free = is_free and owner is not None and owner.folder == folder
            elif is_free and found is None:
                is_free = not _is_elsewhere(top, folder)
            name = top if is_free else marked
            _tops.setdefault(name, _Top(top, folder, self))
            return name

    def _folders(self) -> list[str]:
        """Return where modules are searched: folders that other agents added come after the project's."""
        added = self._project.added.values()
        return list(dict.fromkeys((*self._added, self.root, *chain.from_iterable(added))))

    def _take_entries(self) -> None:
        """Take over what the project's code added to ``sys.path``."""
        if sys.path == _seen_path:
            return
        ahead: list[str] = []
        for entry in [each for at, each in enumerate(sys.path) if _is_new(each, at)]:
            is_ahead = not _known_entries.isdisjoint(sys.path[sys.path.index(entry) + 1 :])
            folder = os.path.abspath(entry)  # noqa: PTH100 - an entry is a text
            is_inside = f"{folder}{os.sep}".startswith(f"{self.root}{os.sep}")
            if not (self._is_loading or is_inside) or not _LIBRARIES.isdisjoint(Path(folder).parts):
                continue
            sys.path.remove(entry)
            if folder == self.root:
                continue
            if entry not in sys.path:
                sys.path.append(entry)
            self._project.entries.add(entry)
            _known_entries.add(entry)
            (ahead if is_ahead else self._project.added.setdefault("", [])).append(folder)
        if ahead:
            self._added[:] = dict.fromkeys((*ahead, *self._added))
        if sys.path != _seen_path:
            self._names.clear()
            _seen_path[:] = sys.path


@dataclass(slots=True)
class _Project:
    """A project that is served."""

    importer: ProjectImporter
    """For modules that no agent's import executes."""
    added: dict[str, list[str]] = field(default_factory=dict)
    """The folders that each agent's code added before others in ``sys.path``; behind them, under no name."""
    entries: set[str] = field(default_factory=set)
    """The same as they are in ``sys.path``."""


@dataclass(frozen=True, slots=True)
class _Top:
    """A top module of a project: its plain name, where it is, and what it is executed with."""

    name: str
    folder: str
    importer: ProjectImporter


_projects: Final[dict[str, _Project]] = {}
"""The projects that are served, by their folders."""
_tops: Final[dict[str, _Top]] = {}
"""The top modules of projects by their names in ``sys.modules``."""
_seen_path: Final[list[str]] = []
"""``sys.path`` when it was last looked at."""
_known_entries: Final[set[str]] = set()
"""Entries of ``sys.path`` that no agent's code added, and those that were taken over."""
_lock: Final = threading.RLock()
_current: Final[ContextVar[ProjectImporter | None]] = ContextVar("pallas_importer", default=None)


def current_importer() -> ProjectImporter:
    """Return the importer of the block in which an agent's code is imported."""
    importer = _current.get()
    assert importer is not None
    return importer


def importer_of(module: ModuleType) -> ProjectImporter | None:
    """Return what a project's module imports with; None for all others."""
    given = vars(module).get("__builtins__")
    found = given.get("__import__") if isinstance(given, dict) else None
    return found if isinstance(found, ProjectImporter) else None


def modules_of(root: Path) -> dict[str, ModuleType]:
    """Return the imported modules of the project at ``root``, by name: its own files only.

    A virtual environment may be in the same folder: its modules do not count.
    """
    found: dict[str, ModuleType] = {}
    below = f"{root}/"
    for name, module in list(sys.modules.items()):
        if (file := file_of(module)).startswith(below):  # nearly all of them are not
            top = plain_name(name).partition(".")[0]
            if top not in _OURS and (
                f"{file}/".startswith((f"{below}{top}/", f"{below}{top}.py"))
                or importer_of(module) is not None
            ):
                found[name] = module
    return found


def file_of(module: ModuleType) -> str:
    """Return the module's file, or a folder of a package without one; empty for neither."""
    if file := getattr(module, "__file__", None):
        return str(file)
    # Asked once: a package without a file searches its folders again for each question.
    return str(next(iter(getattr(module, "__path__", None) or ()), ""))


def forget_project(root: Path) -> None:
    """Let other projects have the names of the project's modules; take back what it added to ``sys.path``."""
    project = _projects.pop(str(root), None)
    for entry in project.entries if project is not None else ():
        _known_entries.discard(entry)
        if entry in sys.path:
            sys.path.remove(entry)
    with _lock:
        for name in [name for name, top in _tops.items() if top.importer.root == str(root)]:
            del _tops[name]


def _is_new(entry: str, at: int) -> bool:
    if entry not in _known_entries:
        return True
    return any(entry in each.entries for each in _projects.values()) and entry in sys.path[at + 1 :]


def _folder_of(spec: ModuleSpec) -> str:
    places = list(spec.submodule_search_locations or ())
    return os.path.dirname(places[0] if places else spec.origin or "")  # noqa: PTH120 - for speed


def _is_in(module: ModuleType, folder: str, top: str) -> bool:
    base, file = f"{folder}{os.sep}{top}", file_of(module)
    return file == base or file.startswith((f"{base}.", f"{base}{os.sep}"))


def _has_any(spec: ModuleSpec, names: Sequence[str]) -> bool:
    """Whether the folder of a package has modules of one of the names."""
    places = list(spec.submodule_search_locations or ())
    return any(PathFinder.find_spec(f"{spec.name}.{name}", places) is not None for name in names)


def _is_elsewhere(top: str, folder: str) -> bool:
    """Whether a module of that name can be imported from elsewhere than ``folder``."""
    if top in sys.stdlib_module_names:
        return True
    others = [entry for entry in sys.path if os.path.abspath(entry) != folder]  # noqa: PTH100
    for finder in sys.meta_path:
        if finder is not _Finder:
            spec = finder.find_spec(top, others if finder is PathFinder else None)
            if spec is not None and (spec.origin or spec.submodule_search_locations):
                return _folder_of(spec) != folder
    return False


class _Finder:
    """Finds the top modules of projects by their names in ``sys.modules``; the import system calls it."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a project's module, also where a library imports it for the project's code."""
        if path is not None:
            return None
        if name not in _tops and (importer := _importer_that_asks()) is not None:
            importer.name_of(name)
        if (top := _tops.get(name)) is None:
            return None
        spec = PathFinder.find_spec(top.name, [top.folder])
        if spec is None:
            return None
        places = spec.submodule_search_locations
        if spec.loader is None:
            package = ModuleSpec(name, None, is_package=True)
            package.submodule_search_locations = list(places or ())
            return package
        loader: Any = type(spec.loader)
        file = spec.origin or ""
        return spec_from_file_location(
            name, file, loader=loader(name, file), submodule_search_locations=places
        )


def _importer_that_asks() -> ProjectImporter | None:
    """Return the importer of the project's code that has a library import a module by its name.

    None where the library imports it for itself, by a statement or while it is imported.
    """
    frame = currentframe()
    is_first = True
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith("importlib."):
            if isinstance(importer := frame.f_builtins.get("__import__"), ProjectImporter):
                return importer
            if frame.f_globals is not globals() and frame.f_globals.get("__name__") != "importlib":
                if is_first and frame.f_code.co_code[frame.f_lasti] == _IMPORT_STATEMENT:
                    return None
                is_first = False
            if frame.f_code.co_name == "<module>":
                return None
        frame = frame.f_back
    return None


def _import_module(name: str, package: str | None = None) -> ModuleType:
    """As ``importlib.import_module``, of which it is the replacement."""
    frame = currentframe()
    caller = frame.f_back if frame is not None else None
    importer = caller.f_builtins.get("__import__") if caller is not None else None
    if isinstance(importer, ProjectImporter):
        return importer.import_module(resolve_name(name, package) if name.startswith(".") else name)
    if (asking := _importer_for_library(name)) is not None:
        return asking.import_module(name)
    return _IMPORT_MODULE(name, package)


def _import_named(name: str, *rest: Any) -> ModuleType:
    """As ``__import__``, for a library that the project's code gives the name of a module."""
    return (_importer_for_library(name) or _IMPORT)(name, *rest)


def _importer_for_library(name: str) -> ProjectImporter | None:
    """Return the importer of the code that has a library import ``name``, if several may have it."""
    return _importer_that_asks() if _is_in_project(name.partition(".")[0]) else None


def _is_in_project(top: str) -> bool:
    """Whether a library would import ``top`` from a project's folder."""
    if not _projects or top in _OURS or top in sys.stdlib_module_names:
        return False
    if top in _tops:
        return True
    if (module := sys.modules.get(top)) is not None:
        file = file_of(module)
    elif (spec := PathFinder.find_spec(top)) is not None:
        file = f"{_folder_of(spec)}{os.sep}{top}"
    else:
        return False
    return any(each.importer.covers(file) for each in _projects.values())


def _exec_module(loader: SourceFileLoader, module: ModuleType) -> None:
    """As ``SourceFileLoader.exec_module``; modules of projects get their ``__import__``."""
    if _projects and (importer := _importer_for(module.__name__, loader.path)) is not None:
        vars(module)["__builtins__"] = importer.builtins
        _drop_older_bytecode(loader.path)
    _EXECUTE(loader, module)
    if module.__name__ in _CHANGED:
        _CHANGED[module.__name__](module)


def _drop_older_bytecode(path: str) -> None:
    """Delete the compiled file if it is older than its source.

    Python compares whole seconds and sizes: it would run what stood there before an edit within a second.
    """
    with suppress(OSError, NotImplementedError, ValueError):
        compiled = Path(cache_from_source(path))
        if compiled.stat().st_mtime_ns <= Path(path).stat().st_mtime_ns:
            compiled.unlink()


def _nearest_importer() -> ProjectImporter | None:
    """Return the importer of the project's code that runs now."""
    frame = currentframe()
    while frame is not None:
        if isinstance(importer := frame.f_builtins.get("__import__"), ProjectImporter):
            return importer
        frame = frame.f_back
    return None


def _tell_processes(spawning: Any) -> None:
    """Have processes that a project's code starts with ``multiprocessing`` find its modules, too."""
    prepare = spawning.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        found: dict[str, Any] = prepare(name)
        if (importer := _nearest_importer()) is not None and "sys_path" in found:
            found["sys_path"] = [*found["sys_path"], importer.root]
        return found

    spawning.get_preparation_data = get_preparation_data


def _let_logging_ask(config: Any) -> None:
    """Have ``logging.config.dictConfig`` find the classes that a project's code names."""
    config.BaseConfigurator.importer = staticmethod(_import_named)


_CHANGED: Final[Mapping[str, Callable[[Any], None]]] = {
    _SPAWNING: _tell_processes,
    _LOGGING: _let_logging_ask,
}
"""What is done with modules of the standard library once they are executed."""


def _importer_for(name: str, file: str) -> ProjectImporter | None:
    top = name.partition(".")[0]
    if top in _OURS:
        return None
    known = _tops.get(top)
    for each in (_current.get(), known.importer if known is not None else None):
        if each is not None and each.covers(file):
            return each
    # A file that a library loads by its path, such as a card's tools.
    inside = [each.importer for each in _projects.values() if each.importer.covers(file)]
    return max(inside, key=lambda each: len(each.root), default=None)


def _install() -> None:
    """Install what the process needs of this. A second call does nothing."""
    if _Finder not in sys.meta_path:
        at = sys.meta_path.index(PathFinder) + 1 if PathFinder in sys.meta_path else len(sys.meta_path)
        sys.meta_path.insert(at, _Finder)
        SourceFileLoader.exec_module = _exec_module  # type: ignore[method-assign, assignment]
        importlib.import_module = _import_module
        for name, change in _CHANGED.items():
            if (module := sys.modules.get(name)) is not None:
                change(module)
