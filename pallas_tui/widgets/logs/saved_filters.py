"""Named filters of the log, saved between two starts."""

from collections.abc import Mapping
from typing import Final

from pallas.safe_text import one_line

from ...json_file import JsonFile
from .filter_language import MAX_LENGTH, read_filter
from .filter_terms import FilterMistake

MOST: Final = 100
NAME_LENGTH: Final = 60


class SavedFilters:
    """Names and filters, in the order in which they were saved; read on first use."""

    def __init__(self, file: JsonFile) -> None:
        self._file = file
        self._filters: dict[str, str] | None = None
        self.mistake = ""
        """The problem with the file, in one line; then it is not overwritten."""

    def all(self) -> Mapping[str, str]:
        """Return the saved filters."""
        if self._filters is None:
            document, self.mistake = self._file.load()
            self._filters = self._read(document) if document is not None else {}
        return self._filters

    def save(self, name: str, text: str) -> str:
        """Save a filter under a name and replace an older one; return the problem, in one line."""
        name = one_line(name, NAME_LENGTH).strip()
        filters = dict(self.all())
        if not name:
            return "A filter needs a name."
        if name not in filters and len(filters) >= MOST:
            return f"There are {MOST} saved filters already; delete one."
        filters.pop(name, None)
        return self._write({**filters, name: text})

    def delete(self, name: str) -> str:
        """Delete a filter; return the problem, in one line."""
        return self._write({key: text for key, text in self.all().items() if key != name})

    def _read(self, document: object) -> dict[str, str]:
        found = document.get("logs") if isinstance(document, dict) else None
        if not isinstance(found, dict):
            self.mistake = f"{self._file.path.name}: has no mapping `logs`; fix or delete it"
            return {}
        filters: dict[str, str] = {}
        for name, text in list(found.items())[:MOST]:
            try:
                readable = isinstance(text, str) and len(text) <= MAX_LENGTH and read_filter(text) is not None
            except FilterMistake:
                readable = False
            if readable:
                filters[one_line(name, NAME_LENGTH)] = one_line(text, MAX_LENGTH)
            else:
                shown = one_line(name, NAME_LENGTH)
                self.mistake = f"{self._file.path.name}: {shown}: is not a filter; fix or delete it"
        return filters

    def _write(self, filters: dict[str, str]) -> str:
        if self.mistake:
            return self.mistake
        try:
            self._file.save({"logs": filters})
        except OSError as error:
            return f"{self._file.path}: cannot be written ({error.strerror})"
        self._filters = filters
        return ""
