"""Free ports on loopback."""

import os
import random
import socket
from typing import Final

# Below what systems give to outgoing connections: a port from there may be some client's own by the time
# that it is bound. The sample project's ports stand in the middle and are left out.
_ALL: Final = (*range(12_000, 24_000), *range(24_400, 32_000))
# Test processes beside this one ask for ports too: each has ports of its own.
_WORKERS: Final = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_RANGE: Final = _ALL[int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) :: _WORKERS]
_given: Final[set[int]] = set()


def free_ports(count: int) -> list[int]:
    """``count`` ports that were free a moment ago; none is given twice in this process."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_RANGE)
        if port not in _given and is_free(port):
            _given.add(port)
            found.append(port)
    return found


def is_free(port: int) -> bool:
    """Whether nobody listens on the port now."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
