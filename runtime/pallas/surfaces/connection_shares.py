"""How many connections each worker process has, so that new ones go to the process with the fewest."""

import mmap
import struct
from collections.abc import Iterator
from typing import Final

_ROW: Final = struct.Struct("ii")
_NUMBER: Final = struct.Struct("i")
_ABSENT: Final = 2**31 - 1
"""The count of a process that accepts nothing."""


class ConnectionShares:
    """A table in memory that all worker processes share, with a row for each of them.

    All processes accept from the same sockets. The kernel wakes all of them for a new connection, and the
    first would take most. A process that has more than another one waits ``PAUSE`` before it accepts.
    """

    PAUSE: Final = 0.005
    """Seconds in which the process with the fewest connections can accept first."""

    own_ports: dict[int, int]
    """Ports on loopback that lead to this process alone, by the shared ports whose pages they serve."""

    def __init__(self, descriptor: int, workers: int, number: int) -> None:
        """Map the table in that file for worker ``number``, counted from 1."""
        self._table = mmap.mmap(descriptor, workers * _ROW.size)
        self._workers = workers
        self.number = number
        self._is_leaving = False
        self.own_ports: dict[int, int] = {}

    @staticmethod
    def size_of(workers: int) -> int:
        """The bytes that the table takes."""
        return workers * _ROW.size

    @property
    def counts(self) -> tuple[int, ...]:
        """The connections of each process."""
        return tuple(count for count, _ in self._rows())

    def publish_port(self, port: int) -> None:
        """Let the other processes know where this one alone serves the fleet's own pages."""
        _NUMBER.pack_into(self._table, (self.number - 1) * _ROW.size + _NUMBER.size, port)

    def other_ports(self) -> dict[int, int]:
        """Where each other process that serves now has its own pages: a port of loopback by its number."""
        rows = enumerate(self._rows(), 1)
        return {
            number: port
            for number, (count, port) in rows
            if number != self.number and port and count < _ABSENT
        }

    def publish(self, count: int) -> None:
        """Set the number of connections of this process."""
        if not self._is_leaving:
            self._set(self.number, count)

    def leave(self) -> None:
        """From now on this process accepts only what no other one does."""
        self._is_leaving = True
        self._set(self.number, _ABSENT)

    def clear(self, number: int) -> None:
        """Mark a process as one that accepts nothing, before it starts and after it has ended."""
        self._set(number, _ABSENT)

    def has_more(self, count: int) -> bool:
        """Publish ``count`` for this process; returns whether another one has fewer connections."""
        self.publish(count)
        fewest = min(self.counts)
        return fewest < _ABSENT if self._is_leaving else count > fewest

    def _rows(self) -> Iterator[tuple[int, int]]:
        return _ROW.iter_unpack(self._table[: self.size_of(self._workers)])

    def _set(self, number: int, count: int) -> None:
        _NUMBER.pack_into(self._table, (number - 1) * _ROW.size, count)
