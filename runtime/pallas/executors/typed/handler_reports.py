"""What the process of an isolated handler says of itself, checked and made harmless."""

import logging
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final

from pallas.model import Fault, FaultType
from pallas.model.codec import Undecodable, dumps, visible
from pallas.model.redaction import redact_head, redact_text
from pallas.payloads import PayloadFault, PayloadType
from pallas.safe_text import one_line, sanitize
from pallas.telemetry.log import replay

MAX_CLASSES: Final = 200
"""Classes of payloads that one process may describe."""
_MAX_CLASS_BYTES: Final = 262_144
_RECORDS_A_SECOND: Final = 200
_FRAMES_A_SECOND: Final = 30_000
_MAX_TEXT: Final = 8_192
_MAX_TRACEBACK: Final = 65_536
_LEVELS: Final = frozenset({"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"})


class HandlerRecords:
    """Logs the records of a process as the agent's own, 200 a second at most."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._logger = logging.getLogger(f"pallas.agents.{agent}")
        self._second, self._logged, self._left_out = 0, 0, 0

    @property
    def is_flooded(self) -> bool:
        """Whether far more records came in this second than are logged."""
        return self._left_out > 10 * _RECORDS_A_SECOND

    def log(self, record: Mapping[str, Any]) -> None:
        """Log one record, with the agent's logger in place of the one it names."""
        if (now := int(monotonic())) != self._second:
            left_out, self._second, self._logged, self._left_out = self._left_out, now, 0, 0
            if left_out:
                self._logger.warning("%d more records were left out", left_out, extra={"agent": self._agent})
        self._logged += 1
        if self._logged > _RECORDS_A_SECOND:
            self._left_out += 1
            return
        level = str(record.get("level"))
        fields: dict[str, Any] = {
            "logger": self._logger.name,
            "level": level if level in _LEVELS else "INFO",
            "message": sanitize(redact_head(_text(record, "message"), _MAX_TEXT)),
            "time": one_line(_text(record, "time"), 40),
            "source": one_line(_text(record, "logger"), 100),
        }
        for name in ("exc", "stack"):
            if record.get(name):
                fields[name] = sanitize(redact_head(_text(record, name), _MAX_TRACEBACK))
        replay(fields, agent=self._agent)


class FrameRate:
    """Counts the frames of a process in each second."""

    def __init__(self) -> None:
        self._second, self._frames = 0, 0

    def count(self) -> bool:
        """Count one frame; return whether they are more in this second than all its messages can need."""
        self._frames += 1
        if (now := int(monotonic())) != self._second:
            self._second, self._frames = now, 0
        return self._frames > _FRAMES_A_SECOND


class PayloadClasses:
    """The classes of payloads that one process described, by key."""

    def __init__(self) -> None:
        self._types: dict[str, PayloadType] = {}
        self._times = 0

    def add(self, key: str, described: Mapping[str, Any], most: int) -> PayloadType:
        """Add a class; by now the process may have described ``most``. Raises Undecodable."""
        self._times += 1
        if self._times > most or (key not in self._types and len(self._types) >= MAX_CLASSES):
            raise Undecodable("it reports too many classes")
        if len(dumps(described)) > _MAX_CLASS_BYTES:
            raise Undecodable("its report on a class is too long")
        try:
            found = PayloadType.from_json(visible(described))
        except PayloadFault as fault:
            raise Undecodable(f"its report on a class is invalid: {one_line(fault.message, 200)}") from None
        if found.key != key:
            raise Undecodable("its report is on another class")
        self._types[key] = found
        return found

    def get(self, key: str) -> PayloadType:
        """Return the class of that key. Raises Undecodable."""
        found = self._types.get(key)
        if found is None:
            raise Undecodable("it sends a message of a class that it did not report")
        return found


def fault_of_load(message: str, place: str) -> Fault:
    """Return the Fault (CONFIG) for a handler that could not be loaded."""
    text = one_line(redact_text(message), 1_000) or "it could not be loaded and does not say why"
    where = one_line(place, 300)
    return Fault(FaultType.CONFIG, text, data={"place": where} if where else {})


def paths_in_project(files: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the files it says it was made of that are relative paths inside the project."""
    return tuple(
        name
        for name in files
        if name and not name.startswith("/") and ".." not in name.split("/") and name == one_line(name, 500)
    )


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""
