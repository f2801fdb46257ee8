"""Postpones what libraries do when they are imported and most fleets never need.

- A package of ``LAZY_PACKAGES`` imports the module of a name when the name is first asked for. Of 450 modules
  with OpenAI's types a fleet uses 60.
- A module of ``CALLED_LATER`` is executed when one of its functions or classes is first called, and one of
  ``LATE_TYPES`` when one of its models is first used.
- pydantic builds the validators of the models of ``LIBRARIES`` when each is first used.
- The methods of dataclasses of ``DATACLASSES_OF`` are compiled when one of them is first called.

All hold for what is imported after ``install`` or ``postpone_methods``, and for these libraries only: all
names are there, and the code of users sees no difference. ``tests/contract/test_import_seam.py`` fails when
the libraries change.
"""

import ast
import dataclasses
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from copy import copy
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from threading import RLock
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, ClassVar, Final

LAZY_PACKAGES: Final = frozenset(
    {
        "openai.types",
        "openai.types.beta",
        "openai.types.chat",
        "openai.types.graders",
        "openai.types.responses",
        "openai.types.shared",
        "openai.types.shared_params",
    }
)
"""Packages whose ``__init__`` only imports names from its modules."""

CALLED_LATER: Final = {
    ("fast_agent.commands.harness", "execute_harness_command"): ("fast_agent.core.harness_tools",),
    ("fast_agent.llm.structured_schema", "validate_json_instance"): ("fast_agent.llm.fastagent_llm",),
    ("fast_agent.llm.structured_schema", "validate_json_schema_definition"): (
        "fast_agent.agents.llm_decorator",
        "fast_agent.agents.tool_agent",
        "fast_agent.llm.fastagent_llm",
    ),
    ("httpx._main", "main"): ("httpx",),
    ("markdown_it", "MarkdownIt"): ("fast_agent.ui.markdown.buffer", "rich.markdown"),
}
"""Modules and the name that is only called, with those that import it; for all others they are executed."""

TABLES: Final = "mcp_types.methods"
"""A module with tables of models by method and protocol version."""

LATE_TYPES: Final = {"mcp_types._v2025_11_25": ("mcp.server.elicitation", TABLES)}
"""Modules of models, with those that import them but use them only in a session of that protocol version."""

LIBRARIES: Final = frozenset({"fast_agent", "fastapi", "fastmcp", "mcp", "mcp_types"})
"""Libraries whose pydantic models are built when they are first used."""

DATACLASSES_OF: Final = LIBRARIES | {"filelock", "h11", "openai", "pallas", "pydantic"}
"""Libraries, and Pallas itself, whose 700 dataclasses are mostly never made or compared."""

_DEFER: Final = "_defer_build"


def install() -> None:
    """Postpone from now on. A second call does nothing."""
    if _PostponedModules not in sys.meta_path:
        sys.meta_path.insert(0, _PostponedModules)
        _defer_models()


def postpone_methods() -> None:
    """Compile no method of a dataclass before it is called, from now on. A second call does nothing.

    A dataclass without a docstring gets its name as one: its signature would have to be compiled for it.
    """
    builder = vars(dataclasses)["_FuncBuilder"]
    at_once = builder.add_fns_to_class
    if at_once.__module__ == __name__:
        return

    def add_fns_to_class(self: Any, cls: type) -> None:
        if not _is_being_imported(cls.__module__, DATACLASSES_OF):
            at_once(self, cls)
            return
        _LateMethods(self, at_once).add_to(cls)
        cls.__doc__ = cls.__doc__ or cls.__name__

    builder.add_fns_to_class = add_fns_to_class


def exports_of(source: bytes) -> dict[str, tuple[str, str]] | None:
    """Return the module (relative to the package) and the name there of each name that ``source`` imports.

    None where it does anything else: then it has to be executed.
    """
    names: dict[str, tuple[str, str]] = {}
    for statement in ast.parse(source).body:
        match statement:
            case ast.ImportFrom(module="__future__") | ast.Expr(value=ast.Constant()):
                pass
            case ast.ImportFrom(level=1, module=module):
                names |= {each.asname or each.name: (module or "", each.name) for each in statement.names}
            case _:
                return None
    return names


class _LazyLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        names = exports_of(self.get_data(self.path))
        if names is None or "*" in names:
            super().exec_module(module)
            return
        package = module.__name__

        def __getattr__(name: str) -> Any:
            place, original = names.get(name, ("", name))
            found: Any
            if place:
                found = getattr(importlib.import_module(f"{package}.{place}"), original)
            else:  # a module of the package, which would have been imported for one of the names
                found = _module(package, original)
            setattr(module, name, found)
            return found

        vars(module).update(
            __getattr__=__getattr__,
            __dir__=lambda: sorted({*vars(module), *names}),
            __all__=[name for name in names if not name.startswith("_")],
        )


class _LaterLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        executing = RLock()
        types: dict[str, _LateType] = {}

        def execute() -> None:
            with executing:
                if vars(module).pop("__getattr__", None) is not None:
                    super(_LaterLoader, self).exec_module(module)

        def __getattr__(name: str) -> Any:
            if name.startswith("__") and name.endswith("__"):  # the import system asks for some
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            importer = _importer()
            if importer in LATE_TYPES.get(module.__name__, ()):
                return types.setdefault(name, _LateType(lambda: getattr(module, name)))
            if importer not in CALLED_LATER.get((module.__name__, name), ()):
                execute()
                return getattr(module, name)

            def call(*arguments: Any, **named: Any) -> Any:
                execute()
                return getattr(module, name)(*arguments, **named)

            return call

        vars(module)["__getattr__"] = __getattr__


class _LateMethods:
    """The generated methods of one dataclass: their source, and later themselves."""

    __slots__ = ("_builder", "_compile_into", "_methods", "_qualname")
    _compiling: ClassVar = RLock()

    def __init__(self, builder: Any, compile_into: Callable[[Any, type], None]) -> None:
        self._builder = builder
        self._compile_into = compile_into
        self._methods: dict[str, FunctionType] = {}
        self._qualname = ""

    def add_to(self, cls: type) -> None:
        """Give the class attributes that compile a method when it is asked for."""
        builder, add = self._builder, vars(dataclasses)["_set_new_attribute"]
        for name in builder.names:
            if builder.unconditional_adds.get(name):
                setattr(cls, name, _LateMethod(self, name))
            elif add(cls, name, _LateMethod(self, name)) and name in builder.overwrite_errors:
                self._compile_into(builder, cls)  # raises the error
        self._qualname = cls.__qualname__
        builder.unconditional_adds = builder.overwrite_errors = _NOTHING

    def compiled_for(self, cls: type, name: str) -> FunctionType:
        """Return a method. From now on it is an attribute of ``cls``, or of its base that has it."""
        with self._compiling:
            method = self._methods.get(name) or self._compiled(name)
        for each in cls.__mro__:
            late = vars(each).get(name)
            if isinstance(late, _LateMethod) and late.methods is self:
                setattr(each, name, method)
        return method

    def _compiled(self, name: str) -> FunctionType:
        builder = copy(self._builder)
        builder.src = [self._builder.src[builder.names.index(name)]]
        builder.names = [name]
        scratch = type("scratch", (), {})
        scratch.__qualname__ = self._qualname
        self._compile_into(builder, scratch)
        method: FunctionType = vars(scratch)[name]
        self._methods[name] = method
        if len(self._methods) == len(self._builder.names):
            self._builder = None
        return method


class _LateMethod:
    """One of the methods, as an attribute of the class."""

    __slots__ = ("methods", "name")

    def __init__(self, methods: _LateMethods, name: str) -> None:
        self.methods = methods
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        return self.methods.compiled_for(owner, self.name).__get__(instance, owner)


_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def _importer() -> str:
    """Return the name of the module that asks a module for an attribute, by itself or in an import."""
    frame = sys._getframe(2)
    while frame.f_globals.get("__name__") == "importlib._bootstrap" and frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


def _module(package: str, name: str) -> ModuleType:
    if not name.startswith("__"):
        try:
            return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


class _LateType:
    """Stands for a model or a union of models until its module is executed."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self.found = find

    def __call__(self) -> Any:  # pydantic takes it for a type only if it can be called
        raise TypeError("late types are not called")

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(self.found())


class _LateRows(dict[Any, Any]):
    """A table whose values may be late types; who looks one up gets the type itself."""

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if isinstance(value, _LateType):
            value = self[key] = value.found()
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def values(self) -> Any:
        return [self[key] for key in self]

    def items(self) -> Any:
        return [(key, self[key]) for key in self]


class _TablesLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        tables: dict[int, Any] = {}
        for name, value in tuple(vars(module).items()):
            if isinstance(value, MappingProxyType) and any(
                type(each) is _LateType for each in value.values()
            ):
                tables[id(value)] = vars(module)[name] = MappingProxyType(_LateRows(value))
        for function in vars(module).values():
            if isinstance(function, FunctionType) and function.__kwdefaults__:
                named = function.__kwdefaults__.items()
                function.__kwdefaults__ = {name: tables.get(id(each), each) for name, each in named}


_LOADERS: Final[dict[str, type[SourceFileLoader]]] = {
    TABLES: _TablesLoader,
    **dict.fromkeys(LAZY_PACKAGES, _LazyLoader),
    **dict.fromkeys([*LATE_TYPES, *(module for module, _ in CALLED_LATER)], _LaterLoader),
}


class _PostponedModules:
    """Finds the modules with a loader of ours; the import system calls it."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's own spec with a lazy loader, None for any other module."""
        loader = _LOADERS.get(name)
        if loader is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = loader(name, spec.loader.path)
        return spec


def _defer_models() -> None:
    """Let models of ``LIBRARIES`` say ``defer_build``, which pydantic offers, and adapters of types too."""
    from pydantic import TypeAdapter
    from pydantic._internal._model_construction import ModelMetaclass

    make = ModelMetaclass.__new__
    is_deferred = vars(TypeAdapter)[_DEFER].fget

    def __new__(metaclass: Any, name: str, bases: Any, namespace: Any, *rest: Any, **options: Any) -> type:
        if bases and "defer_build" not in namespace.get("model_config", ()):
            if _is_being_imported(namespace.get("__module__")):
                options.setdefault("defer_build", True)
            elif any(_library(each.__module__) in LIBRARIES for each in bases):
                options.setdefault("defer_build", False)  # what others derive from them is built at once
        return make(metaclass, name, bases, namespace, *rest, **options)

    def _defer_build(self: Any) -> bool:
        return _is_being_imported(self._module_name) or bool(is_deferred(self))

    ModelMetaclass.__new__ = __new__  # type: ignore[method-assign, assignment]
    setattr(TypeAdapter, _DEFER, property(_defer_build))


def _is_being_imported(module: str | None, libraries: Set[str] = LIBRARIES) -> bool:
    """Whether that is a module of ``libraries`` that is executed now."""
    if _library(module) not in libraries:
        return False
    return getattr(getattr(sys.modules.get(module or ""), "__spec__", None), "_initializing", False)


def _library(module: str | None) -> str:
    return (module or "").partition(".")[0]
