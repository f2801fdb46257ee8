"""Splits a stream of server-sent events into their data."""

import json
from codecs import BOM_UTF8
from typing import Any, Final

import msgspec

from pallas.bounds import MAX_MESSAGE, in_mib
from pallas.bounds.bodies import TooLarge

MAX_STRAY: Final = 64 * 1024
"""Bytes of lines that belong to no event, which are kept to say what the body is."""
_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
_NO_EVENTS: Final = frozenset({b"ping", b"heartbeat", b"keepalive", b"keep-alive"})
"""Names of events that only keep a connection open, whatever their data is."""
_ERROR: Final = b"error"


class EventLines:
    """Takes a stream in pieces.

    ``stray`` is the beginning of what is not in the form of events. ``has_events``: there was one.
    """

    def __init__(self) -> None:
        self.stray = b""
        self.has_events = False
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._name = b""
        self._is_begun = False
        self._ends_in_return = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of the events that are complete. Raises TooLarge for a line that is too long."""
        if b"\r" in data or self._ends_in_return:
            if self._ends_in_return and data.startswith(b"\n"):
                data = data[1:]
            self._ends_in_return = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._rest += data
        if not self._is_begun and len(self._rest) >= len(BOM_UTF8):
            self._is_begun = True
            self._rest = self._rest.removeprefix(BOM_UTF8)
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
            elif line.startswith(b"event:"):
                self._name = line[6:].strip()
            elif line:
                if not line.startswith(_FIELDS) and len(self.stray) < MAX_STRAY:
                    self.stray += line[:MAX_STRAY] + b"\n"
            else:
                data, self._data = self._data, []
                name, self._name = self._name, b""
                if not any(data):
                    continue
                self.has_events = True
                if len(data) > 1:
                    data = _parted(data)
                if name in _NO_EVENTS and not _is_json(data[0]):
                    data = [b"null"]  # a client must know that the server is alive
                found += [_reported(data[0])] if name == _ERROR else data
        return found


def _parted(lines: list[bytes]) -> list[bytes]:
    """Return the data of one event in several lines, or of one event for each if no blank line parts them."""
    whole = b"\n".join(lines)
    if not _is_json(whole) and all(not line or is_end(line) or _is_json(line) for line in lines):
        return [line for line in lines if line]
    return [whole]


def _reported(data: bytes) -> bytes:
    """Return the data of an event that is named an error: words become an error object."""
    return data if _is_json(data) else json.dumps({"error": data.decode(errors="replace")}).encode()


def is_end(data: bytes) -> bool:
    """Whether that is the word with which OpenAI's streams end, however it is written."""
    return data[:1] != b"{" and data[:16].strip(b'" \t').upper().startswith(b"[DONE]")


def read_json(data: bytes) -> Any:
    """Return the value of a JSON text, as the providers' libraries read it. Raises ValueError."""
    try:
        return msgspec.json.decode(data)
    except (
        msgspec.MsgspecError,
        UnicodeError,
    ):  # NaN, halves of surrogate pairs, bytes that are not UTF-8
        return json.loads(data.decode(errors="replace").removeprefix("\ufeff"))


def _is_json(data: bytes) -> bool:
    try:
        read_json(data)
    except ValueError:
        return False
    return True
