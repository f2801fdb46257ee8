"""What the system itself keeps an isolated handler from, set before any of its code is there."""

import ctypes
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

FILES: Final = 1_024
"""Descriptors that its process has at most."""
_EMPTY: Final = 64 * 1024 * 1024
_PR_SET_NO_NEW_PRIVS: Final = 38
_CAPABILITIES_VERSION: Final = 0x20080522


def limit(memory: int) -> None:
    """For the rest of this process, and for all that it starts; nothing in it can take that back.

    ``memory`` (bytes, 0 for any) is what it may ask for beyond what the empty process has, in each process by
    itself; a thread's stack counts. The fleet looks at what all of them together really have.
    """
    _set(resource.RLIMIT_CORE, 0)
    _set(resource.RLIMIT_NOFILE, FILES)
    if memory > 0:
        _set(resource.RLIMIT_DATA, _data() + memory)
    if sys.platform == "linux":  # programs that become somebody else when they are started stay who we are
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None, use_errno=True)
            library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            _drop_capabilities(library)


def _drop_capabilities(library: ctypes.CDLL) -> None:
    """Where the fleet runs as root: its handler has root's name alone, and cannot look into processes."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice 32 bits of each
    library.capset(ctypes.byref(header), ctypes.byref(none))


def _data() -> int:
    """Bytes that this process may write to now; a guess where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[5])
    except (OSError, ValueError, IndexError):
        return _EMPTY
    return pages * resource.getpagesize()


def _set(which: int, most: int) -> None:
    """Lower a limit, for good: never raise it, as nobody but root may."""
    with suppress(ValueError, OSError):
        hard = resource.getrlimit(which)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (value, value))
