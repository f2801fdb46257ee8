"""Warnings of files that others may change, or of keys that others may read.

The files of a project are code: a command in one of them is executed. So any user who may write them runs
programs as the user who starts Pallas.
"""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pallas.model.redaction import is_sensitive

from .agents import Draft
from .cards import read_cards
from .code import code_file, payload_module
from .files import module_file, shown
from .models import Where
from .notes import Notes

# In block and flow style, and as in ``.env``; what follows a number sign is a comment.
_SETTING: Final = re.compile(r"""(?P<name>[\w.-]{1,100})["']?\s*[:=]\s*(?P<value>[^,}]*)""")
_COMMENT: Final = re.compile(r"(?:^|\s)#.*")
# ``offline`` and ``not-needed`` stand where a key is asked for and none is wanted.
_WORD: Final = re.compile(r"[A-Za-z_-]{1,12}")
_MOST: Final = 1 << 20


def warn_if_shared(path: Path, file: str, notes: Notes) -> None:
    """Warn when others than its owner may change a file that decides what runs, or read the keys in it.

    A group may read them: that is how a service is given its keys.
    """
    try:
        found = path.stat()
    except OSError:
        return
    mode = found.st_mode
    _warn_of_writers(found, file, f"chmod go-w {file}", notes)
    if mode & stat.S_IROTH and stat.S_ISREG(mode) and _holds_secrets(path):
        notes.warn(Where(file), "", "holds keys or tokens and can be read by others", f"chmod o-r {file}")


def warn_of_code(root: Path, drafts: Mapping[str, Draft], notes: Notes) -> None:
    """Warn of the project's folder, and of modules and cards of its agents, that others may change."""
    try:
        mode = root.stat().st_mode
    except OSError:
        return
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        notes.warn(Where("."), "", "the project's folder can be written by others", f"chmod o-w {root}")
    for path in dict.fromkeys(_code(root, drafts.values())):
        try:
            found = path.stat()
        except OSError:
            continue
        file = shown(root, path)
        _warn_of_writers(found, file, f"chmod go-w {file}", notes)


def _code(root: Path, drafts: Iterable[Draft]) -> Iterable[Path]:
    for draft in drafts:
        if draft.config.card:
            yield draft.config.card
            yield from (each.path for each in read_cards(root, draft.config.card).cards)
            continue
        own, payload = code_file(root, draft.config), payload_module(draft.config)
        for file in (own, module_file(root, payload) if payload else None):
            if file is None:
                continue
            yield file
            # Importing a module runs the packages that hold it.
            for folder in file.parents:
                if folder == root or not folder.is_relative_to(root):
                    break
                yield folder / "__init__.py"


def _warn_of_writers(found: os.stat_result, file: str, hint: str, notes: Notes) -> None:
    bits = [("others", stat.S_IWOTH)]
    if not _is_group_of_one(found.st_uid, found.st_gid):
        bits.insert(0, ("its group", stat.S_IWGRP))
    who = " and ".join(name for name, bit in bits if found.st_mode & bit)
    if who:
        notes.warn(Where(file), "", f"can be written by {who}", hint)


def _is_group_of_one(user: int, group: int) -> bool:
    """Whether a group is its user's own, as many systems make one for each user, with a umask of 002."""
    try:
        import grp  # there are none for Windows
        import pwd

        owner, found = pwd.getpwuid(user), grp.getgrgid(group)
    except (ImportError, KeyError, OSError):
        return False
    is_own = owner.pw_gid == group and owner.pw_name == found.gr_name and owner.pw_uid != 0
    return is_own and not {*found.gr_mem} - {owner.pw_name}


def _holds_secrets(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            text = stream.read(_MOST).decode("utf-8", "replace")
    except OSError:
        return False
    lines = (_COMMENT.sub("", line) for line in text.splitlines())
    found = (match for line in lines for match in _SETTING.finditer(line))
    return any(_is_secret(match["name"], match["value"]) for match in found)


def _is_secret(name: str, written: str) -> bool:
    value = written.strip().strip("\"'").strip()
    if not is_sensitive(name) or not value or value.startswith("$") or value.isdigit():
        return False
    return not _WORD.fullmatch(value)
