"""What a user may change of the workbench, in one small file of theirs."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from platformdirs import user_config_path

from pallas.safe_text import one_line

from .settings_schema import BY_KEY, SCHEMA, ModelPrice, Setting, check

VARIABLE: Final = "PALLAS_WORKBENCH_CONFIG"
MAX_FILE: Final = 1024 * 1024
"""Bytes that are read of the file."""


@dataclass(frozen=True, slots=True)
class Notify:
    """Which notifications are sent while the user is away, and how; ``after`` is in seconds."""

    runs: bool = True
    agents: bool = True
    questions: bool = True
    after: float = 10.0
    bell: bool = True
    desktop: bool = True
    program: bool = False
    title: bool = True


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings as the workbench uses them; ``settings_schema.SCHEMA`` describes each.

    ``theme`` is empty for Pallas's own choice; ``keys`` maps action ids to keys. ``ascii`` draws shapes and
    lines with ASCII characters only; None leaves that to the locale. ``prices`` maps model patterns to the
    price of a million tokens, ``callers`` names to variables that hold a token. ``mistakes`` are lines to
    show: values of the file that are ignored.
    """

    theme: str = ""
    ascii: bool | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    mistakes: tuple[str, ...] = ()
    vim: bool = True
    thumbnails: bool = True
    notify: Notify = field(default_factory=Notify)
    protocol: str = "auto"
    editor: str = ""
    prices: Mapping[str, ModelPrice] = field(default_factory=dict)
    callers: Mapping[str, str] = field(default_factory=dict)
    wrap: bool = False
    ask_quit: bool = True
    reopen: bool = True

    def get(self, key: str) -> Any:
        """The value of the setting that stands under ``key`` in the file; KeyError for one there is not."""
        if key not in BY_KEY:
            raise KeyError(key)
        value: Any = self
        for name in key.split("."):
            value = getattr(value, name)
        return value

    def having(self, key: str, value: Any) -> "Settings":
        """These settings with another value for one of them, which must have been checked."""
        group, _, name = key.rpartition(".")
        if not group:
            return replace(self, **{name: value})
        return replace(self, **{group: replace(getattr(self, group), **{name: value})})


def settings_path() -> Path:
    """``PALLAS_WORKBENCH_CONFIG``, else ``workbench.yaml`` in the user's configuration folder."""
    if chosen := os.environ.get(VARIABLE, "").strip():
        return Path(chosen).expanduser().absolute()
    return user_config_path("pallas", appauthor=False) / "workbench.yaml"


def state_path(name: str) -> Path:
    """Return the file where the workbench keeps ``name`` between two starts: in the settings folder."""
    return settings_path().with_suffix(f".{name}.json")


def load_settings(path: Path | None = None) -> Settings:
    """Return the user's settings. A missing file is empty; mistakes in one are reported, never raised."""
    path = path or settings_path()
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        return _unread(path, error)
    if len(raw) > MAX_FILE:
        return Settings(mistakes=(f"{path.name}: is larger than {MAX_FILE} bytes and was not read",))
    import yaml  # 20 ms that a user without a file does not wait for

    try:
        document = yaml.safe_load(raw.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError, yaml.YAMLError) as error:
        return _unread(path, error)
    if document is None:
        return Settings()
    if not isinstance(document, dict):
        return Settings(mistakes=(f"{path.name}: must be a mapping with {', '.join(_names())}",))
    return _settings(document, path.name)


def _unread(path: Path, error: Exception) -> Settings:
    return Settings(mistakes=(f"{path.name}: cannot be read: {one_line(str(error))}",))


def _settings(document: dict[Any, Any], name: str) -> Settings:
    mistakes: list[str] = []
    flat = _flat(document, name, mistakes)
    settings = Settings()
    for setting in SCHEMA:
        if setting.key in flat:

            def report(what: str, setting: Setting = setting) -> None:
                mistakes.append(f"{name}: {setting.key}: {what}")

            settings = settings.having(setting.key, check(setting, flat[setting.key], report))
    return replace(settings, mistakes=tuple(mistakes))


def _flat(document: dict[Any, Any], name: str, mistakes: list[str]) -> dict[str, Any]:
    """Return the values of the file by their full key; add unknown keys to ``mistakes``."""
    flat: dict[str, Any] = {}

    def unknown(key: object, group: str) -> None:
        allowed = _names(group)
        mistakes.append(
            f"{name}: {group}{_shown(key)}: unknown; allowed are {', '.join(allowed)}" + _hint(key, allowed)
        )

    for key, value in document.items():
        group = f"{key}."
        if key in BY_KEY:
            flat[key] = value
        elif isinstance(key, str) and _names(group):
            if not isinstance(value or {}, dict):
                mistakes.append(f"{name}: {key}: must be a mapping with {', '.join(_names(group))}")
                continue
            for inner, one in (value or {}).items():
                if f"{group}{inner}" in BY_KEY:
                    flat[f"{group}{inner}"] = one
                else:
                    unknown(inner, group)
        else:
            unknown(key, "")
    return flat


def _names(group: str = "") -> list[str]:
    """The names that may stand in the file, or below ``group`` (with its dot)."""
    keys = [setting.key.removeprefix(group) for setting in SCHEMA if setting.key.startswith(group)]
    return list(dict.fromkeys(key.partition(".")[0] for key in keys))


def _shown(key: object) -> str:
    return one_line(str(key), 40)


def _hint(key: object, known: Iterable[str]) -> str:
    close = get_close_matches(str(key), list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""
