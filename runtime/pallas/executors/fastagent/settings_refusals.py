"""What the installed fast-agent refuses of a project's configuration, each with its place."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from fast_agent.config import Settings, deep_merge
from pydantic import ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsError

from pallas.config import Mistake, Where
from pallas.config.envfile import environ_of
from pallas.config.fastagent import settings_files
from pallas.config.notes import Notes
from pallas.config.tree import Items, Node, Table
from pallas.config.yamlfile import expand
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

_WRITTEN: Final = re.compile(r"`([\w.]+)`")
"""How a refusal of the whole names its key."""
_QUOTED: Final = re.compile(r'field "(\w+)"')
"""How it names a variable that it cannot read."""
_OWN_WORDS: Final = ("Value error, ", "Assertion failed, ")


def settings_mistakes(root: Path, config: Path | None) -> tuple[Mistake, ...]:
    """Return a mistake for each value that fast-agent's settings refuse: with one no agent starts.

    ``config`` is the configuration of the project at ``root``.

    Files that cannot be read are reported elsewhere.
    """
    environ = environ_of(root)
    files, table = settings_files(root, environ, config)
    try:
        merged: dict[str, Any] = {}
        for path in files:
            merged = deep_merge(merged, _resolved(_written(path), environ))
        _settings_with(environ)(**merged)
    except ValidationError as error:
        return _mistakes(error, table, environ)
    except SettingsError as error:
        return _unreadable_variable(error, environ)
    except Exception:  # a file that is no YAML, and what its variables lead to
        return ()
    return ()


def _settings_with(environ: Mapping[str, str]) -> type[Settings]:
    """Return fast-agent's settings that read this environment, and not that of the process."""

    class _SettingsOfProject(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            env_settings = EnvSettingsSource(settings_cls)
            env_settings.env_vars = {name.lower(): value for name, value in environ.items()}
            return (init_settings, cls._without_ambiguous_home_source(env_settings))

    return _SettingsOfProject


def _written(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8")) or {}


def _resolved(node: Any, environ: Mapping[str, str]) -> Any:
    """Return a value with ``${NAME}`` and ``${NAME:default}`` replaced as fast-agent does it."""
    if isinstance(node, dict):
        return {key: _resolved(each, environ) for key, each in node.items()}
    if isinstance(node, list):
        return [_resolved(each, environ) for each in node]
    return expand(node, environ)[0] if isinstance(node, str) else node


def _unreadable_variable(error: SettingsError, environ: Mapping[str, str]) -> tuple[Mistake, ...]:
    """Return the mistake of a variable that fast-agent takes for one of its settings."""
    notes = Notes()
    named = _QUOTED.search(str(error))
    key = named[1] if named is not None else ""
    notes.error(
        Where(_variable(environ, key)),
        key,
        "is set in the environment, and fast-agent cannot read it",
        "unset it",
    )
    return notes.sorted([])


def _mistakes(error: ValidationError, table: Table, environ: Mapping[str, str]) -> tuple[Mistake, ...]:
    """Return one mistake for each place; of the choices of a union the first one speaks."""
    notes, seen = Notes(), set[Where]()
    for each in error.errors(include_url=False, include_input=True, include_context=False):
        written = _WRITTEN.search(each["msg"]) if not each["loc"] else None
        where, key = _place(table, each["loc"] or ((written[1],) if written else ("",)))
        if key not in table.entries and (variable := _variable(environ, key)):
            where = Where(variable)
        if where not in seen:
            seen.add(where)
            notes.error(where, key, *refusal_words(each))
    return notes.sorted([])


def _variable(environ: Mapping[str, str], key: str) -> str:
    """Return the variable that sets a key at the top of the settings, empty for none."""
    return next((name for name in environ if name.lower() == key), "")


def refusal_words(error: Mapping[str, Any]) -> tuple[str, str]:
    """Return problem and fix of an error of pydantic, without the value, which may be a secret."""
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
