"""``.env``: settings for a machine that the environment may override (PR-10)."""

import io
import os
import re
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Final

from .files import absolute, is_there
from .models import ConfigError, Where
from .notes import Notes
from .permissions import warn_if_shared
from .textfile import read_text

ENV_FILE: Final = ".env"
_NAME: Final = re.compile(r"[^=\0]+")


def read_env(root: Path, environ: Mapping[str, str], notes: Notes) -> dict[str, str]:
    """What ``.env`` sets, its own ``${VAR}`` resolved; names that ``environ`` has keep that value.

    No ``.env`` is an empty one. A line that is no ``NAME=value`` is noted, never repeated.
    """
    path = root / ENV_FILE
    if not is_there(path):
        return {}
    # 10 ms, and many projects have no such file.
    from dotenv.parser import parse_stream
    from dotenv.variables import parse_variables

    warn_if_shared(path, ENV_FILE, notes)
    text = read_text(path, ENV_FILE, notes)
    values: dict[str, str] = {}
    for binding in parse_stream(io.StringIO(text or "")):
        # A statement takes the blank lines before it along.
        skipped = len(binding.original.string) - len(binding.original.string.lstrip())
        line = binding.original.line + binding.original.string[:skipped].count("\n")
        fits = binding.key is None or (binding.value is not None and _NAME.fullmatch(binding.key))
        if binding.error or not fits or "\0" in (binding.value or ""):
            notes.error(
                Where(ENV_FILE, line), "", "is not a setting", "write NAME=value, with quotes around blanks"
            )
        elif binding.key is not None and binding.value is not None:
            known = {**values, **environ}
            values[binding.key] = "".join(atom.resolve(known) for atom in parse_variables(binding.value))
    return values


def environ_of(root: Path) -> dict[str, str]:
    """The environment of the project at ``root`` when it is served. Mistakes in ``.env`` are not noted."""
    own = real_environ(root)
    return {**read_env(root, own, Notes()), **own}


# What is in the process's environment because of a project's files, by its folder.
_brought: Final[dict[Path, dict[str, str]]] = {}


def export_env(root: Path, environ: MutableMapping[str, str] = os.environ) -> frozenset[str]:
    """Put what ``.env`` sets into ``environ``, except names that are there already (PR-10).

    Called again, what it brought before is brought up to date or taken out; names that other code set
    stay. Returns the names that changed. Raises ConfigError when ``.env`` cannot be read; then nothing is
    changed.
    """
    root = absolute(root)
    own = real_environ(root, environ)
    notes = Notes()
    values = read_env(root, own, notes)
    mistakes = tuple(found for found in notes.sorted([ENV_FILE]) if found.level == "error")
    if mistakes:
        raise ConfigError(mistakes)
    before = {name: environ[name] for name in environ if name not in own}
    brought = {name: value for name, value in values.items() if name not in own}
    for name in before.keys() - brought.keys():
        del environ[name]
    environ.update(brought)
    if environ is os.environ:
        _brought[root] = brought
    return frozenset(
        name for name in before.keys() | brought.keys() if before.get(name, "") != brought.get(name, "")
    )


def fill_unset(root: Path, names: Iterable[str]) -> None:
    """Set each name that is not set to nothing, as something that a project's files brought (PR-10).

    fast-agent reads its files itself and would send the text ``${NAME}`` as it stands.
    """
    for name in names:
        if name not in os.environ:
            os.environ[name] = ""
            _brought.setdefault(absolute(root), {})[name] = ""


def real_environ(root: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """``environ`` without what the files of the project at ``root`` brought into the process's own."""
    brought = _brought.get(absolute(root), {}) if environ is os.environ else {}
    return {name: value for name, value in environ.items() if brought.get(name) != value}
