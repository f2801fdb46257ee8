"""What a user may change of the workbench, in one small file of theirs."""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import yaml
from platformdirs import user_config_path

from pallas.text import one_line

VARIABLE: Final = "PALLAS_WORKBENCH_CONFIG"
_KEYS: Final = ("theme", "ascii", "keys")


@dataclass(frozen=True, slots=True)
class Settings:
    """``theme`` is one of Textual's, empty for Pallas's own choice; ``keys`` maps action ids to keys.

    ``ascii`` draws shapes and lines with ASCII characters only; None leaves that to the locale.
    ``mistakes`` are lines to show: what was wrong in the file and is therefore ignored.
    """

    theme: str = ""
    ascii: bool | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    mistakes: tuple[str, ...] = ()


def settings_path() -> Path:
    """``PALLAS_WORKBENCH_CONFIG``, else ``workbench.yaml`` in the user's configuration folder."""
    if chosen := os.environ.get(VARIABLE, "").strip():
        return Path(chosen).expanduser().absolute()
    return user_config_path("pallas", appauthor=False) / "workbench.yaml"


def state_path(name: str) -> Path:
    """Where the workbench keeps ``name`` between two starts: beside the settings, a file it never writes."""
    return settings_path().with_suffix(f".{name}.json")


def load_settings(path: Path | None = None) -> Settings:
    """The user's settings. A file that is not there is none; what is wrong in one is told, never raised."""
    path = path or settings_path()
    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return Settings(mistakes=(f"{path.name}: cannot be read: {one_line(str(error))}",))
    if document is None:
        return Settings()
    if not isinstance(document, dict):
        return Settings(mistakes=(f"{path.name}: must be a mapping with {', '.join(_KEYS)}",))
    return _settings(document, path.name)


def _settings(document: dict[Any, Any], name: str) -> Settings:
    mistakes = [
        f"{name}: {_shown(key)}: unknown; allowed are {', '.join(_KEYS)}" + _hint(key, _KEYS)
        for key in document
        if key not in _KEYS
    ]
    theme, plain, keys = document.get("theme", ""), document.get("ascii"), document.get("keys") or {}
    if not isinstance(theme, str):
        mistakes.append(f"{name}: theme: must be the name of a theme")
        theme = ""
    if plain is not None and not isinstance(plain, bool):
        mistakes.append(f"{name}: ascii: must be true or false")
        plain = None
    if not isinstance(keys, dict):
        mistakes.append(f"{name}: keys: must map actions to keys, for example `zoom: z`")
        keys = {}
    chosen = {}
    for action, key in keys.items():
        if not isinstance(key, str | int) or isinstance(key, bool) or not str(key).strip():
            mistakes.append(
                f"{name}: keys: {_shown(action)}: must be a key or several, for example `f6,ctrl+g`"
            )
        else:
            chosen[str(action)] = str(key)
    return Settings(theme, plain, chosen, tuple(mistakes))


def unknown_actions(keys: Iterable[str], known: Collection[str]) -> list[str]:
    """A line for each of the user's keys that belongs to no action in ``known``.

    Apart from loading, because which actions there are is known only when every pane is there.
    """
    return [
        f"keys: {_shown(action)}: no such action" + _hint(action, known)
        for action in keys
        if action not in known
    ]


def _shown(key: object) -> str:
    return one_line(str(key), 40)


def _hint(key: object, known: Iterable[str]) -> str:
    close = get_close_matches(str(key), list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""
