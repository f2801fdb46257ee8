"""Small JSON files that persist between two starts, written as a whole or not at all."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pallas.safe_text import one_line

MAX_FILE: Final = 1024 * 1024
"""Bytes that are read of one file."""


class JsonFile:
    """The document in the file at ``path``. Do not put secrets into it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> tuple[Any, str]:
        """The document, and a problem with the file in one line. A missing file is None without a problem."""
        name = self.path.name
        try:
            with self.path.open("rb") as file:
                raw = file.read(MAX_FILE + 1)
            if len(raw) > MAX_FILE:
                return None, f"{name}: is larger than {MAX_FILE} bytes and was not read; delete it"
            return json.loads(raw), ""
        except FileNotFoundError:
            return None, ""
        except (OSError, ValueError, RecursionError) as error:
            return None, f"{name}: cannot be read ({one_line(str(error), 120)}); fix or delete it"

    def save(self, document: Any) -> None:
        """Write the document atomically, readable by this user only. Raises OSError."""
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        # A path may hold bytes that are no UTF-8; JSON has an escape for what Python makes of them.
        data = text.encode("utf-8", "backslashreplace")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder, so that the replacement is atomic and a full disk leaves the old file intact.
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            draft.replace(self.path)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
