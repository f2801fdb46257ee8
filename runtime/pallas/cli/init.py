"""`pallas init`: write a small project that runs as it is."""

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from pallas.config.json_schema import SCHEMA_FILE, schema_text

_TEMPLATE: Final = "templates/project"
_NAME: Final = "name: my-project\n"
# Installers and git would act on a file with that name inside the package.
_RENAMED: Final = {"gitignore": ".gitignore"}


def init(target: Path) -> int:
    """Write a project of two agents that needs no key and no network into ``target``.

    Returns the exit status: 0, or 2 when a file is in the way or the folder cannot be written. Existing files
    are never overwritten.
    """
    with suppress(RuntimeError):
        target = target.expanduser()
    wanted = list(_template())
    taken = [name for name, _ in wanted if os.path.lexists(target / name)]
    if taken:
        print(f"{target}: nothing written: {', '.join(taken)} would be overwritten", file=sys.stderr)
        return 2
    try:
        for name, text in wanted:
            _write(target / name, _named(text, target) if name == "agents.yaml" else text)
    except OSError as error:
        where = error.filename or target
        print(
            f"{where}: cannot be written: {error.strerror or error}; choose another folder", file=sys.stderr
        )
        return 2
    place = shlex.quote(str(target))
    print(f"created {place} with {', '.join(name for name, _ in wanted)}")
    print(f"next:  pallas dev {place}")
    return 0


def _template() -> Iterator[tuple[str, str]]:
    """Yield relative name and text of the template's files, sorted by name, and of the schema for editors."""

    def below(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
            name = prefix + _RENAMED.get(entry.name, entry.name)
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from below(entry, f"{name}/")
            else:
                yield name, entry.read_text(encoding="utf-8")

    yield from below(files("pallas") / _TEMPLATE, "")
    yield SCHEMA_FILE, schema_text()


def _named(text: str, target: Path) -> str:
    """Return the text with the project named after its folder."""
    name = " ".join(target.resolve().name.split())[:100]
    return text.replace(_NAME, f"name: {json.dumps(name, ensure_ascii=False)}\n", 1) if name else text


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # x: a file that appeared since the check is not overwritten either.
    with path.open("x", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
