"""Ids that no caller can guess."""

import os
import secrets
from threading import Lock
from typing import Final

_AT_ONCE: Final = 4096
"""Bytes that are asked of the operating system at a time; a run needs eight ids."""
_lock = Lock()
_store = b""


def mint() -> str:
    """A new conversation handle with 144 random bits."""
    return f"conv-{secrets.token_urlsafe(18)}"


def random_bytes(number: int) -> bytes:
    """``number`` bytes of the operating system's secure random numbers, at most 4096. Thread-safe.

    For ids, which are published; secrets come from ``secrets``.
    """
    global _store
    with _lock:
        if len(_store) < number:
            _store = os.urandom(_AT_ONCE)
        taken, _store = _store[:number], _store[number:]
    return taken


def random_hex(number: int) -> str:
    """As many random bytes as hexadecimal digits."""
    return random_bytes(number).hex()


def _forget() -> None:
    global _store, _lock
    _store = b""
    _lock = Lock()


os.register_at_fork(after_in_child=_forget)  # otherwise both would have the same ids


def mint_run() -> str:
    """A new run id."""
    return random_hex(6)


def mint_claim() -> str:
    """A new id of a fleet's claim on a run."""
    return random_hex(6)
