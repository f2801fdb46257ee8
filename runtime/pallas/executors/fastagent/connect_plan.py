"""The plan by which a new instance of an agent connects its servers."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from pallas.tools_lock.tool_gate import ToolGate

from .listed_servers import ListedServers

CONNECT_SECONDS: Final = 20.0
"""How long a new instance waits for its servers."""


@dataclass(slots=True)
class ConnectPlan:
    """How to connect the servers of one instance.

    ``until`` is when to stop waiting, in the loop's time; ``skip`` are servers that are not connected now.
    ``gate`` compares what they list with the lock, ``listed`` notes it.
    """

    until: float
    skip: frozenset[str] = field(default_factory=frozenset)
    gate: ToolGate | None = None
    listed: ListedServers | None = None


_plan: ContextVar[ConnectPlan | None] = ContextVar("pallas_connect_plan", default=None)


@contextmanager
def planned(plan: ConnectPlan) -> Iterator[None]:
    """Make agents that are created in this block connect their servers by ``plan``."""
    token = _plan.set(plan)
    try:
        yield
    finally:
        _plan.reset(token)


def current_plan() -> ConnectPlan | None:
    """The plan of the block that this is called in; None outside of one."""
    return _plan.get()
