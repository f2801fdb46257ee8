"""Modules for code that was written for xml-pipeline, if that package is not installed.

They are looked up last: a module of the project or an installed package of the same name comes first.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from types import ModuleType
from typing import Any, Final

from lxml import etree

from pallas.config.listeners import FOREIGN
from pallas.contract import (
    HandlerMetadata,
    HandlerResponse,
    SystemError,
    TodoClosed,
    TodoComplete,
    TodoRegistered,
    TodoUntil,
)
from pallas.invocation import TodoList, current
from pallas.llm import LLMResponse, complete
from pallas.payloads import PayloadType
from pallas.payloads.xml_element import Element


def xmlify[T: type](cls: T) -> T:
    """Return the dataclass as it is: Pallas derives its XML. Raises TypeError for any other class."""
    if not is_dataclass(cls):
        raise TypeError(f"{cls.__name__} is not a dataclass; write @xmlify above @dataclass")
    return cls


def parse_bytes[T](cls: type[T], xml_bytes: bytes) -> T:
    """Return an instance of the dataclass that the XML holds. Raises PayloadFault."""
    kind = PayloadType.of(cls)
    value: T = kind.bind(kind.parse(xml_bytes), cls)
    return value


def parse_string[T](cls: type[T], xml_str: str) -> T:
    """As ``parse_bytes``, of text."""
    return parse_bytes(cls, xml_str.encode())


def parse_element[T](cls: type[T], element: Element) -> T:
    """As ``parse_bytes``, of an element."""
    return parse_bytes(cls, etree.tostring(element, with_tail=False))


@dataclass
class TextInput:
    """Text from a person or a program outside."""

    text: str
    source: str = "console"
    user: str = ""


@dataclass
class TextOutput:
    """Text for a person or a program outside."""

    text: str
    status: str = "ok"


async def platform_complete(
    agent_name: str, thread_id: str, user_message: str, *, include_history: bool = True, **params: Any
) -> str:
    """Return what a model answers to one message, below the listener's ``prompt``. Raises Fault.

    ``agent_name`` and ``thread_id`` are ignored: the call is for the message being handled. A thread has no
    history here.
    """
    model = str(params.pop("model", ""))
    answered = await complete(model, [{"role": "user", "content": user_message}], **params)
    return answered.content


class TodoRegistry:
    """The todos of the message that is being handled."""

    def register(
        self,
        thread_id: str,
        issuer: str,
        wait_for: str,
        from_listener: str | None = None,
        description: str = "",
    ) -> str:
        """Return the id of a new watcher of this conversation. Raises Fault or RuntimeError."""
        return self._todos().register(wait_for, from_listener or "", description)

    def get_raised_for(self, thread_id: str, agent: str) -> Sequence[Any]:
        """Return the watchers whose message has come."""
        return self._todos().raised()

    def get_pending_for(self, thread_id: str, agent: str) -> Sequence[Any]:
        """Return the watchers that still wait."""
        return self._todos().pending()

    def close(self, watcher_id: str) -> bool:
        """Close a watcher; return whether it existed."""
        return self._todos().complete(watcher_id)

    def _todos(self) -> TodoList:
        invocation = current()
        if invocation is None or invocation.todos is None:
            raise RuntimeError(
                "the registry of todos is for handlers in the fleet's process; send TodoUntil to system.todo"
            )
        return invocation.todos


_registry: Final = TodoRegistry()


def get_todo_registry() -> TodoRegistry:
    """Return the registry; which todos are in it depends on the message that is being handled."""
    return _registry


def get_console() -> None:
    """Return None: there is no console of xml-pipeline, so a handler prints."""


def _modules() -> Mapping[str, Mapping[str, Any]]:
    state = {
        "HandlerMetadata": HandlerMetadata,
        "HandlerResponse": HandlerResponse,
        "SystemError": SystemError,
    }
    todo = {each.__name__: each for each in (TodoUntil, TodoComplete, TodoRegistered, TodoClosed)}
    text = {each.__name__: each for each in (TextInput, TextOutput)}
    asked = {"complete": complete, "LLMResponse": LLMResponse}
    platform = {"complete": platform_complete, "platform_complete": platform_complete}
    registry = {"get_todo_registry": get_todo_registry, "TodoRegistry": TodoRegistry}
    xmlable = {each.__name__: each for each in (xmlify, parse_bytes, parse_string, parse_element)}
    found: dict[str, Mapping[str, Any]] = {"third_party": {}, "third_party.xmlable": xmlable}
    for root in FOREIGN:
        found |= {
            root: {},
            f"{root}.message_bus": state,
            f"{root}.message_bus.message_state": state,
            f"{root}.primitives": {**todo, **text},
            f"{root}.primitives.todo": todo,
            f"{root}.primitives.text_input": text,
            f"{root}.message_bus.todo_registry": registry,
            f"{root}.console": {},
            f"{root}.console.console_registry": {"get_console": get_console},
            f"{root}.llm": asked,
            f"{root}.llm.router": asked,
            f"{root}.platform": platform,
            f"{root}.platform.llm_api": platform,
        }
    return found


MODULES: Final = _modules()


class _Loader(importlib.abc.Loader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Return None, so that the module is made as usual."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(MODULES[module.__name__])


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in MODULES:
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=True)


def install() -> None:
    """Make the modules importable in this process, unless others have their names."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())
