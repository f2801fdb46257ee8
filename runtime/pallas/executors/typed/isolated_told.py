"""What an isolated handler's process says of itself, made harmless: records, faults, types, paths."""

import logging
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final

from pallas.model import Fault, FaultType
from pallas.model.codec import Undecodable, dumps, visible
from pallas.model.safe_text import one_line, sanitize
from pallas.payloads import PayloadFault, PayloadType
from pallas.telemetry.log import redact_text, replay

_RECORDS_A_SECOND: Final = 200
_FRAMES_A_SECOND: Final = 30_000
_TEXT: Final = 8_192
_STORY: Final = 65_536
# Bytes of JSON that describe a class, and classes that one process tells of.
_TYPE: Final = 262_144
MAX_KINDS: Final = 200
_LEVELS: Final = frozenset({"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"})


class Records:
    """Logs what a process gave its log, as the agent's own, 200 a second at most."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._second, self._told, self._left_out = 0, 0, 0

    @property
    def flooded(self) -> bool:
        """Whether far more came in this second than anybody reads."""
        return self._left_out > 10 * _RECORDS_A_SECOND

    def tell(self, record: Mapping[str, Any]) -> None:
        """Log one record. Who it says that it is of is not believed: its logger is put below the agent's."""
        if (now := int(monotonic())) != self._second:
            left_out, self._second, self._told, self._left_out = self._left_out, now, 0, 0
            if left_out:
                self._own.warning("%d more records were left out", left_out, extra={"agent": self._agent})
        self._told += 1
        if self._told > _RECORDS_A_SECOND:
            self._left_out += 1
            return
        level = str(record.get("level"))
        fields: dict[str, Any] = {
            "logger": self._own.name,
            "level": level if level in _LEVELS else "INFO",
            "message": sanitize(redact_text(_text(record, "message", _TEXT))),
            "time": one_line(_text(record, "time", 40)),
            "source": one_line(_text(record, "logger", 100)),
        }
        for name in ("exc", "stack"):
            if record.get(name):
                fields[name] = sanitize(redact_text(_text(record, name, _STORY)))
        replay(fields, agent=self._agent)

    @property
    def _own(self) -> logging.Logger:
        return logging.getLogger(f"pallas.agents.{self._agent}")


class Pace:
    """How much a process says: more than all its messages could be about is not listened to at once."""

    def __init__(self) -> None:
        self._second, self._heard = 0, 0

    def hurried(self) -> bool:
        """One more was heard: whether that is too much for this second."""
        self._heard += 1
        if (now := int(monotonic())) != self._second:
            self._second, self._heard = now, 0
        return self._heard > _FRAMES_A_SECOND


class Kinds:
    """The classes of payloads that one process has told of, by key; each says only how to read its own."""

    def __init__(self) -> None:
        self._kinds: dict[str, PayloadType] = {}
        self._times = 0

    def learn(self, key: str, described: Mapping[str, Any], most: int) -> PayloadType:
        """A class that it tells of, which it may have done ``most`` times by now. Raises Undecodable."""
        self._times += 1
        if self._times > most or (key not in self._kinds and len(self._kinds) >= MAX_KINDS):
            raise Undecodable("it tells of too many classes")
        if len(dumps(described)) > _TYPE:
            raise Undecodable("what it tells of a class is too long")
        try:
            kind = PayloadType.from_json(visible(described))
        except PayloadFault as fault:
            raise Undecodable(f"what it tells of a class is none: {one_line(fault.message, 200)}") from None
        if kind.key != key:
            raise Undecodable("what it tells of a class is of another one")
        self._kinds[key] = kind
        return kind

    def of(self, key: str) -> PayloadType:
        """The class of that key. Raises Undecodable."""
        kind = self._kinds.get(key)
        if kind is None:
            raise Undecodable("it sends a message of a class that it did not tell of")
        return kind


def fault_of_load(message: str, place: str) -> Fault:
    """Why a handler could not be loaded (CONFIG)."""
    text = one_line(redact_text(message), 1_000) or "it could not be loaded and does not say why"
    where = one_line(place, 300)
    return Fault(FaultType.CONFIG, text, data={"place": where} if where else {})


def paths(files: tuple[str, ...]) -> tuple[str, ...]:
    """Files that it says it was made of: those that are inside the project, by their relative paths."""
    return tuple(
        name
        for name in files
        if name and not name.startswith("/") and ".." not in name.split("/") and name == one_line(name, 500)
    )


def _text(record: Mapping[str, Any], name: str, most: int) -> str:
    value = record.get(name)
    return value[:most] if isinstance(value, str) else ""
