"""Changing one setting in the user's file, with everything else in it left as it is, comments too."""

import os
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

from pallas.safe_text import one_line

from .settings_schema import ModelPrice


class CannotSave(Exception):
    """The file could not be changed; the text says why and what to do."""


def save_setting(path: Path, key: str, value: Any) -> None:
    """Put ``value`` under ``key`` (a dot leads into a mapping), or take the key out when it is None.

    Makes the file when there is none. The exchange is one step, through a link to where the file really is,
    and its permissions stay; a new one is for this user only. Raises CannotSave.
    """
    from ruamel.yaml import YAML  # 60 ms that only who changes a setting pays
    from ruamel.yaml.error import YAMLError

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    path = path.resolve()
    try:
        text = path.read_text("utf-8") if path.exists() else ""
        document = yaml.load(text) if text.strip() else None
        if document is None:
            document = yaml.map()
        if not isinstance(document, dict):
            raise CannotSave(f"{path.name} is not a mapping; fix it in your editor first")
        _put(document, key.split("."), _plain(value))
        out = StringIO()
        # A file of comments only has no document they could belong to.
        if text.strip() and not any(_says(line) for line in text.splitlines()):
            out.write(text.rstrip("\n") + "\n")
        if document:
            yaml.dump(document, out)
        _exchange(path, out.getvalue())
    except (OSError, UnicodeDecodeError) as error:
        raise CannotSave(f"{path.name} cannot be written: {one_line(str(error), 120)}") from error
    except YAMLError as error:
        reason = one_line(str(error), 120)
        raise CannotSave(f"{path.name} cannot be read ({reason}); fix it in your editor first") from error


def _says(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _put(document: Any, keys: list[str], value: Any) -> None:
    *groups, name = keys
    above = [document]
    for group in groups:
        if not isinstance(above[-1].get(group), dict):
            if value is None:
                return
            above[-1][group] = {}
        above.append(above[-1][group])
    if value is not None:
        above[-1][name] = value
        return
    above[-1].pop(name, None)
    # A mapping with nothing left in it would be a mistake to look at.
    for group, outer in zip(reversed(groups), reversed(above[:-1]), strict=True):
        if not outer[group]:
            del outer[group]


def _plain(value: Any) -> Any:
    """``value`` as it is written: no type of ours, whole numbers without a fraction."""
    if isinstance(value, ModelPrice):
        return {"input": _plain(value.input), "output": _plain(value.output)}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _exchange(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        draft.chmod(mode)
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
