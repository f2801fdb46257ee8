"""Ports on loopback that no other process of tests is given."""

import socket
from collections.abc import Iterator
from itertools import cycle
from random import SystemRandom
from typing import Final

# Below what systems give to outgoing connections: a port from there may be some client's own by the time
# that it is bound. The sample project's ports are between the two and are left out.
_BLOCK: Final = 200
_FIRSTS: Final = (*range(12_000, 24_000, _BLOCK), *range(24_400, 32_000, _BLOCK))
# Not the global one: Hypothesis seeds that, in each process alike.
_random: Final = SystemRandom()


def free_ports(count: int) -> list[int]:
    """``count`` ports that no process listens on, and that only this process gives until it ends.

    None is given twice, unless all blocks are in use: then the oldest is given again.
    """
    return [next(_ports) for _ in range(count)]


def free_row(count: int) -> int:
    """The first of ``count`` ports in a row, as ``free_ports`` gives single ones."""
    return next(
        port
        for port in _ports
        if (port + count - 1) // _BLOCK == port // _BLOCK and all(map(is_free, range(port, port + count)))
    )


def is_free(port: int) -> bool:
    """Whether no process listens on the port now."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _own_ports(firsts: Iterator[int]) -> Iterator[int]:
    """The ports of a block, then those of the next one; at the end all of them again.

    A block is this process's own while its first port is bound here: the system releases it with the process.
    """
    given: list[int] = []
    for first in firsts:
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", first))
        except OSError:  # another process has it
            holder.close()
            continue
        holder.detach()
        block = _random.sample(range(first + 1, first + _BLOCK), _BLOCK - 1)
        given += block
        yield from filter(is_free, block)
    if not given:
        raise RuntimeError("each block of ports is in use by another process of tests")
    yield from filter(is_free, cycle(given))


_ports: Final = _own_ports(iter(_random.sample(_FIRSTS, len(_FIRSTS))))
