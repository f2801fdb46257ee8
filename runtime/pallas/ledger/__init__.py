"""What lasts: threads, their messages, runs, and what was made over the API (SPEC 6.1, C11).

The database library is loaded when a ledger is opened, and not before.
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
