"""Which instances are registered, kept in a small file between two starts."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pallas.model import Fault
from pallas.text import one_line

from .address import document_url

MAX_INSTANCES: Final = 50
_MAX_FILE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Saved:
    """What is kept of an instance: the URL of its document, and whether it was attached."""

    url: str
    attached: bool = False


class Store:
    """The file at ``path``. It holds URLs only, which hold no secret (``document_url``)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> tuple[tuple[Saved, ...], tuple[str, ...]]:
        """What was saved, and a line for each mistake in the file; one that is not there is empty."""
        name = self.path.name
        try:
            with self.path.open("rb") as file:
                raw = file.read(_MAX_FILE + 1)
            if len(raw) > _MAX_FILE:
                return (), (f"{name}: is larger than {_MAX_FILE} bytes and was not read; delete it",)
            document = json.loads(raw)
        except FileNotFoundError:
            return (), ()
        except (OSError, ValueError, RecursionError) as error:
            return (), (f"{name}: cannot be read ({one_line(str(error), 120)}); mend or delete it",)
        entries = document.get("instances") if isinstance(document, dict) else None
        if not isinstance(entries, list):
            return (), (f"{name}: holds no list named instances; mend or delete it",)
        return _saved(entries, name)

    def save(self, saved: Sequence[Saved]) -> None:
        """Write all of them at once, readable by this user only; raises OSError."""
        entries = [{"url": each.url, "attached": each.attached} for each in saved]
        text = json.dumps({"instances": entries}, indent=2) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder, so that the exchange is one step and a full disk leaves the old file whole.
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            draft.replace(self.path)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


def _saved(entries: list[Any], name: str) -> tuple[tuple[Saved, ...], tuple[str, ...]]:
    kept: dict[str, Saved] = {}
    mistakes: list[str] = []
    for number, entry in enumerate(entries[:MAX_INSTANCES], 1):
        url = entry.get("url") if isinstance(entry, dict) else None
        try:
            url = document_url(url if isinstance(url, str) else "")
        except Fault as fault:
            mistakes.append(f"{name}: entry {number}: {fault.message}")
        else:
            kept[url] = Saved(url, entry.get("attached") is True)
    if len(entries) > MAX_INSTANCES:
        mistakes.append(f"{name}: only the first {MAX_INSTANCES} instances were read")
    return tuple(kept.values()), tuple(mistakes[:10])
