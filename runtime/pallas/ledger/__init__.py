"""The ledger: the database of a fleet, with threads, their messages, runs, tasks and resources.

``ledger`` opens it, recovers what dead fleets left, and prunes old runs. ``thread_table``, ``run_store``,
``task_store``, ``session_store``, ``question_store``, ``resource_store`` and ``replica_store`` are its
stores; ``turn_statements`` writes a turn step by step, ``model_context`` and ``thread_history`` are what a
model is shown of a thread. ``sqlite`` and ``postgres`` run the work of the stores, ``database`` is their
interface.
``lives`` and ``advisory_locks`` tell living fleets from dead ones; ``claims`` decides which of several fleets
takes over a run of a dead one. ``tables``, ``schema`` and ``migrate`` are
the tables and their revisions.
SQLAlchemy is imported when a ledger is opened, and not before.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .ledger_address import database_url_of, masked

if TYPE_CHECKING:
    from .ledger import Ledger, open_ledger
    from .resource_store import ResourceStore
    from .run_store import RunStore
    from .thread_table import ThreadRows

__all__ = [
    "Ledger",
    "ResourceStore",
    "RunStore",
    "ThreadRows",
    "database_url_of",
    "masked",
    "open_ledger",
]

_LATER = {
    "Ledger": "ledger",
    "open_ledger": "ledger",
    "ResourceStore": "resource_store",
    "RunStore": "run_store",
    "ThreadRows": "thread_table",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
