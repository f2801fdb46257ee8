"""Loads a typed handler: its function, the class of its payload, and the classes it knows (HC-1)."""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pallas.contract
from pallas.config import AgentConfig, Project
from pallas.config.listeners import FOREIGN
from pallas.config.project_imports import find_imports
from pallas.contract import HandlerMetadata, HandlerResponse
from pallas.executors.fastagent.reimport import note
from pallas.executors.handler.handler_loader import find, place_of, shown_file
from pallas.executors.project_importer import file_of
from pallas.executors.project_imports import LOADING, import_context, import_fault
from pallas.model import Fault, FaultType
from pallas.model.module_name import plain_name
from pallas.payloads import PayloadType
from pallas.safe_text import one_line
from pallas.telemetry.log import reapply_logging

Handler = Callable[[Any, HandlerMetadata], Awaitable[Any]]

_SHAPE: Final = "async def {}(payload, metadata)"
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAME_ONE: Final = "name a dataclass of yours: `payload: module:Class`"
_OURS: Final = frozenset({HandlerMetadata, HandlerResponse})
MAX_KNOWN: Final = 2_000
"""Classes that one handler may know; others count as unknown to it."""


@dataclass(frozen=True, slots=True)
class LoadedHandler:
    """A handler that may be called: ``kind`` is the class of its payload, ``payload`` that class's type.

    ``known`` are the dataclasses that its code can name, by ``module:Class``; it gets an answer of such a
    class as an instance of this version of the class. ``defined`` is ``file:line``.
    """

    handler: Handler
    kind: type
    payload: PayloadType
    known: Mapping[str, type]
    defined: str = ""


def load_handler(project: Project, agent: AgentConfig, *, fresh: bool) -> LoadedHandler:
    """Import what the agent's ``handler:`` and ``payload:`` name, and check both without a call.

    Blocks while the code is imported. Raises Fault (CONFIG) with file and line.
    """
    assert agent.handler is not None
    assert agent.handler.typed is not None
    handler, payload = agent.handler.path, agent.handler.typed.payload
    module, of_payload = handler.partition(":")[0], payload.partition(":")[0]
    importing = module
    with LOADING:
        try:
            if agent.handler.typed.listener:
                from .xml_pipeline_compat import install

                install()
            with import_context(project, agent.name, fresh=fresh):
                found = find(project, agent, handler)
                importing = of_payload
                kind = find(project, agent, payload, "payload")
                known = _known(project.root, found, kind)
        except Fault:
            raise
        except BaseException as error:  # a user's module may raise anything
            raise import_fault(project, importing, error) from error
        finally:
            reapply_logging()  # the user's code may have set up logging
        note(each for name in (module, of_payload) for each in find_imports(project.root, name).files)
    return _checked(project, agent, found, kind, known)


def key_of(kind: type) -> str:
    """Return ``module:Class``, the key by which other handlers know a class."""
    return f"{plain_name(kind.__module__)}:{kind.__qualname__}"


def _checked(
    project: Project, agent: AgentConfig, found: Any, kind: Any, known: Mapping[str, type]
) -> LoadedHandler:
    assert agent.handler is not None
    assert agent.handler.typed is not None
    name = f"{agent.handler.path} of {agent.name}"
    place = _place_of_class(project, found) or place_of(project, _code(found))
    try:
        handler = check_handler(found, name)
        defined, place = place, _place_of_class(project, kind) or place
        kind = check_payload(kind, f"{agent.handler.typed.payload} of {agent.name}")
        payload = PayloadType.of(kind)
    except Fault as fault:
        if place:
            raise Fault(fault.type, f"{place}: {fault.message}", data={"place": place}) from None
        raise
    return LoadedHandler(handler, kind, payload, {**known, payload.key: kind}, defined)


def _code(found: Any) -> Any:
    return found if inspect.isclass(found) or not callable(found) else code_of(found)


def _place_of_class(project: Project, kind: Any) -> str:
    if not inspect.isclass(kind):
        return ""
    try:
        return one_line(
            f"{shown_file(project, inspect.getsourcefile(kind) or '')}:{inspect.getsourcelines(kind)[1]}"
        )
    except (OSError, TypeError):
        return ""


def _known(root: Path, found: Any, kind: Any) -> dict[str, type]:
    """Return the dataclasses in the handler's module, and in modules of the project that it names."""
    known: dict[str, type] = {}
    for each in (*_dataclasses_in(_globals_of(found), root), *_dataclasses_in(vars(pallas.contract), None)):
        if len(known) < MAX_KNOWN:
            known.setdefault(key_of(each), each)
    # If the code names xml-pipeline's own SystemError and the like, it gets that instead of ours.
    for each in [each for each in known.values() if plain_name(each.__module__).partition(".")[0] in FOREIGN]:
        ours = f"{pallas.contract.__name__}:{each.__name__}"
        if ours in known:
            known[ours] = each
    return known


def _globals_of(found: Any) -> Mapping[str, Any]:
    code = inspect.unwrap(code_of(found)) if callable(found) and not inspect.isclass(found) else None
    return getattr(code, "__globals__", {})


def _dataclasses_in(names: Mapping[str, Any], root: Path | None) -> Iterator[type]:
    modules: list[ModuleType] = []
    for value in list(names.values()):
        if inspect.isclass(value) and is_dataclass(value):
            yield value
        elif root is not None and isinstance(value, ModuleType) and file_of(value).startswith(f"{root}/"):
            modules.append(value)
    for module in modules:
        yield from _dataclasses_in(vars(module), None)


def check_handler(found: Any, name: str) -> Handler:
    """Return ``found`` if it is ``async def`` and takes a payload and metadata. Raises Fault (CONFIG).

    It may be a ``partial``, a method, or an object whose ``__call__`` is ``async def``. ``name`` is what the
    Fault calls it.
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
            f"write `{shape}`; a synchronous function is not called. For code that blocks use "
            "`await asyncio.to_thread(...)` in it",
        )
    _check_arguments(found, name, shape)
    handler: Handler = found
    return handler


def code_of(found: Any) -> Any:
    """Return the function of a handler that is a ``partial``, an object that can be called, or a wrapper."""
    while isinstance(found, partial):
        found = found.func
    if not inspect.isroutine(found):
        found = getattr(type(found), "__call__", found)  # noqa: B004 - the function itself is wanted
        while isinstance(found, partial):
            found = found.func
    return found


def check_payload(found: Any, name: str) -> type:
    """Return ``found`` if it is a dataclass. Raises Fault (CONFIG)."""
    if not inspect.isclass(found):
        raise _wrong(name, f"is {_a(found)} and no class", _NAME_ONE, "payload")
    if found in _OURS:
        raise _wrong(name, "is not a payload", _NAME_ONE, "payload")
    if not is_dataclass(found):
        raise _wrong(
            name, "is not a dataclass", f"write `@dataclass` above `class {found.__name__}`", "payload"
        )
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
        raise _wrong(name, f"takes ({one_line(given, 120)})", f"write `{shape}`: it gets only these two")


def _a(found: Any) -> str:
    return f"of type {one_line(type(found).__name__, 60)}"


def _wrong(name: str, problem: str, hint: str, what: str = "handler") -> Fault:
    return Fault(FaultType.CONFIG, f"{what} {one_line(name, 200)} {problem}; {hint}")
