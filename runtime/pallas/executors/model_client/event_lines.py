"""Splits a stream of server-sent events into their data."""

import json
from typing import Any, Final

import msgspec

from pallas.bounds import MAX_MESSAGE, in_mib
from pallas.bounds.bodies import TooLarge

MAX_STRAY: Final = 64 * 1024
"""Bytes of lines that belong to no event, which are kept to say what the body is."""
_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")


class EventLines:
    """Takes a stream in pieces.

    ``stray`` is the beginning of what is not in the form of events. ``has_events``: there was one.
    """

    def __init__(self) -> None:
        self.stray = b""
        self.has_events = False
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._ends_in_return = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of the events that are complete. Raises TooLarge for a line that is too long."""
        if b"\r" in data or self._ends_in_return:
            if self._ends_in_return and data.startswith(b"\n"):
                data = data[1:]
            self._ends_in_return = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._rest += data
        if b"\n" not in data:
            if len(self._rest) > MAX_MESSAGE:
                raise TooLarge(f"the answer holds a line of more than {in_mib(MAX_MESSAGE)}, decoded")
            return []
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        return self._events(lines)

    def end(self) -> list[bytes]:
        """Return the data of an event whose last line has no end, if it is whole nevertheless."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [each for each in self._events([rest, b""]) if is_end(each) or _is_json(each)]

    def _events(self, lines: list[bytes]) -> list[bytes]:
        found = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line:
                if not line.startswith(_FIELDS) and len(self.stray) < MAX_STRAY:
                    self.stray += line[:MAX_STRAY] + b"\n"
            elif self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                self._data = []
                if data:
                    found.append(data)
                    self.has_events = True
        return found


def is_end(data: bytes) -> bool:
    """Whether that is the word with which OpenAI's streams end."""
    return data.startswith(b"[DONE]")


def read_json(data: bytes) -> Any:
    """Return the value of a JSON text, as the providers' libraries read it. Raises ValueError."""
    try:
        return msgspec.json.decode(data)
    except msgspec.MsgspecError:  # NaN and halves of surrogate pairs, which Python's own takes
        return json.loads(data)


def _is_json(data: bytes) -> bool:
    try:
        read_json(data)
    except ValueError:
        return False
    return True
