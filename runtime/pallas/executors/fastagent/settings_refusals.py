"""What the installed fast-agent refuses of a project's configuration, each with its place."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from fast_agent.config import Settings, deep_merge, load_yaml_mapping
from pydantic import ValidationError

from pallas.config import Mistake, Where
from pallas.config.envfile import read_env, real_environ
from pallas.config.fastagent import settings_files
from pallas.config.notes import Notes
from pallas.config.tree import Items, Node, Table
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

_WRITTEN: Final = re.compile(r"`([\w.]+)`")
"""How a refusal of the whole names its key."""
_OWN_WORDS: Final = ("Value error, ", "Assertion failed, ")


def settings_mistakes(root: Path) -> tuple[Mistake, ...]:
    """Return a mistake for each value that fast-agent's settings refuse: with one no agent starts.

    Files that cannot be read are reported elsewhere.
    """
    own = real_environ(root)
    environ = {**read_env(root, own, Notes()), **own}
    files, table = settings_files(root, environ)
    with _environment(environ):
        try:
            merged: dict[str, Any] = {}
            for path in files:
                merged = deep_merge(merged, load_yaml_mapping(path))
            Settings(**merged)
        except ValidationError as error:
            return _mistakes(error, table)
        except Exception:  # a file that is no YAML, and what its variables lead to
            return ()
    return ()


def _mistakes(error: ValidationError, table: Table) -> tuple[Mistake, ...]:
    """Return one mistake for each place; of the choices of a union the first one speaks."""
    notes, seen = Notes(), set[Where]()
    for each in error.errors(include_url=False, include_input=True, include_context=False):
        written = _WRITTEN.search(each["msg"]) if not each["loc"] else None
        where, key = _place(table, each["loc"] or ((written[1],) if written else ("",)))
        if where not in seen:
            seen.add(where)
            notes.error(where, key, *_words(each))
    return notes.sorted([])


def _words(error: Mapping[str, Any]) -> tuple[str, str]:
    """Return problem and fix, without the value, which may be a secret."""
    if error["input"] is None:
        return "has no value", "write one, or remove the key"
    text = error["msg"]
    for own in _OWN_WORDS:
        text = text.removeprefix(own)
    problem = one_line(redact_text(text[:1].lower() + text[1:]), 200).replace("input should", "should")
    return problem.rstrip("."), "quote it" if error[
        "type"
    ] == "string_type" else "fast-agent refuses it: correct it"


def _place(table: Table, location: tuple[str | int, ...]) -> tuple[Where, str]:
    """Return where a value is written, and its key; of one that fast-agent has moved, that of its name."""
    node: Node = table
    where, keys = table.where, list[str]()
    for step in location:
        if isinstance(node, Table) and (entry := node.entries.get(str(step))) is not None:
            node, where = entry.node, entry.where
        elif isinstance(node, Items) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            where = node.where
        else:
            break
        keys.append(str(step))
    if not keys and (found := next(_named(table, str(location[-1])), None)) is not None:
        return found
    return where, ".".join(keys or [str(each) for each in location])


def _named(table: Table, name: str, path: str = "") -> Iterator[tuple[Where, str]]:
    """Yield each key of that name, wherever it is."""
    for key, entry in table.entries.items():
        if key == name:
            yield entry.where, f"{path}{key}"
        if isinstance(entry.node, Table):
            yield from _named(entry.node, name, f"{path}{key}.")


@contextmanager
def _environment(environ: Mapping[str, str]) -> Iterator[None]:
    """Have the variables of a project in the environment meanwhile, as when it is served."""
    added = {name: value for name, value in environ.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
