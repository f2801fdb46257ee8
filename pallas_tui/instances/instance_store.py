"""Which instances are registered, kept in a small file between two starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pallas.model import Fault

from ..json_file import JsonFile
from .registry_address import document_url

MAX_INSTANCES: Final = 50


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved instance: the URL of its document, and whether it was attached."""

    url: str
    attached: bool = False


class InstanceStore:
    """The file at ``path``. It holds URLs only, which hold no secret (``document_url``)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> tuple[tuple[Saved, ...], tuple[str, ...]]:
        """Return the saved instances, and a line for each mistake in the file. A missing file is empty."""
        name = self.path.name
        document, mistake = JsonFile(self.path).load()
        if mistake:
            return (), (mistake,)
        if document is None:
            return (), ()
        entries = document.get("instances") if isinstance(document, dict) else None
        if not isinstance(entries, list):
            return (), (f"{name}: holds no list named instances; fix or delete it",)
        return _saved(entries, name)

    def save(self, saved: Sequence[Saved]) -> None:
        """Write all of them at once, readable by this user only; raises OSError."""
        entries = [{"url": each.url, "attached": each.attached} for each in saved]
        JsonFile(self.path).save({"instances": entries})


def _saved(entries: list[Any], name: str) -> tuple[tuple[Saved, ...], tuple[str, ...]]:
    instances: dict[str, Saved] = {}
    mistakes: list[str] = []
    for number, entry in enumerate(entries[:MAX_INSTANCES], 1):
        url = entry.get("url") if isinstance(entry, dict) else None
        try:
            url = document_url(url if isinstance(url, str) else "")
        except Fault as fault:
            mistakes.append(f"{name}: entry {number}: {fault.message}")
        else:
            instances[url] = Saved(url, entry.get("attached") is True)
    if len(entries) > MAX_INSTANCES:
        mistakes.append(f"{name}: only the first {MAX_INSTANCES} instances were read")
    return tuple(instances.values()), tuple(mistakes[:10])
