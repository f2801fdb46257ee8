"""Hides files from this process with Landlock, which needs Linux 5.13 or newer and no privileges.

Landlock allows what a rule names and refuses the rest; no rule can refuse one folder. So every folder that is
not on the way to a hidden one gets a rule.
"""

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from itertools import chain, islice
from pathlib import Path
from typing import Final

MAX_RULES: Final = 20_000
"""Rules of one process; files without a rule cannot be opened."""
MAX_MODULES: Final = 5_000
"""Files of the project's code that can be imported."""
_CODE: Final = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)
_NO_CODE: Final = frozenset({"node_modules", "__pycache__"})
# The same on all machines that Python 3.13 supports.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_WRITE_FILE, _READ_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 2, 1 << 13, 1 << 14
_OF_FILES: Final = _WRITE_FILE | _READ_FILE | _TRUNCATE
_CHANGE: Final = sum(1 << bit for bit in range(4, 13))  # remove and make files and folders of each kind


class _Attributes(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def hide(hidden: Sequence[Path], *, readable: Iterable[Path], own: Iterable[Path]) -> bool:
    """Forbid this process and all that it starts to open files in ``hidden``, for good.

    Files and folders there that are ``readable`` may be read, those that are its ``own`` also changed.
    Returns whether the system can do that. It binds only the calling thread, and threads that this starts.
    """
    if not (version := abi_version()):
        return False
    calls = ctypes.CDLL(None, use_errno=True)
    handled = _WRITE_FILE | _READ_FILE | _CHANGE
    handled |= (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    attributes = _Attributes(handled)
    rules = calls.syscall(
        _CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes)), 0
    )
    if rules < 0:
        return False
    try:
        hidden = [Path(os.path.realpath(each)) for each in hidden]
        rights = chain(
            ((path, _READ_FILE) for path in readable),
            ((path, handled) for path in (*own, *_siblings(Path("/"), hidden))),
        )
        for path, access in islice(rights, MAX_RULES):
            _allow(calls, rules, path, access)
        return bool(calls.syscall(_RESTRICT_SELF, rules, 0) == 0)
    finally:
        os.close(rules)


def hide_project(root: Path, hidden: Sequence[str], own: Sequence[str]) -> bool:
    """Hide the project's files and those in ``hidden`` from this process, except code and ``own``.

    Returns whether the system can do that.
    """
    return hide(
        (root, *map(Path, hidden)),
        readable=(*_packages(), *_modules(root)),
        own=map(Path, own),
    )


def _packages() -> Iterator[Path]:
    """Yield the folders of Python and of installed packages, which may be in the project's folder."""
    yield from {Path(os.path.realpath(each)) for each in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    yield from (Path(each) for each in sys.path if "site-packages" in each)
    yield Path(__file__).parents[2]


def _modules(root: Path) -> Iterator[Path]:
    """Yield the project's code, for imports that a handler does when it is called."""
    count = 0
    for folder, folders, files in os.walk(root):
        folders[:] = [each for each in folders if not each.startswith(".") and each not in _NO_CODE]
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        for name in files:
            path = Path(folder, name)
            if name.endswith(_CODE) and path.resolve().name.endswith(_CODE):
                count += 1
                if count > MAX_MODULES:
                    return
                yield path


def abi_version() -> int:
    """Return the version of Landlock's interface that this system has, 0 for none."""
    if sys.platform != "linux":
        return 0
    call = ctypes.CDLL(None, use_errno=True).syscall
    return max(0, int(call(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)))


def _allow(calls: ctypes.CDLL, rules: int, path: Path, access: int) -> None:
    """Add a rule for a file or folder, unless it cannot be opened."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rule = _PathBeneath(access if path.is_dir() else access & _OF_FILES, descriptor)
        calls.syscall(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)


def _siblings(folder: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    """Yield all below ``folder`` except ``hidden``, as few paths as possible; links are not followed."""
    inner = [each for each in hidden if each.is_relative_to(folder)]
    if not inner:
        yield folder
        return
    if folder in inner:
        return
    with suppress(OSError):
        for entry in os.scandir(folder):
            if not entry.is_symlink():
                yield from _siblings(Path(entry.path), inner)
