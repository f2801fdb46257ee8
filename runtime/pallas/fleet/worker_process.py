"""This process as one of the worker processes of a project (``workers:``), and its link to their parent.

The parent (``pallas.cli.worker_parent``) binds the ports and starts the processes. The link is a pair of Unix
sockets that carry JSON, one object a datagram, with descriptors where a socket is passed. Each side notices
on it that the other one has ended.
"""

import asyncio
import ctypes
import errno
import hashlib
import hmac
import json
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from pallas.model import Fault, FaultType
from pallas.surfaces.connection_shares import ConnectionShares
from pallas.surfaces.session_seal import SessionSeal

VARIABLE: Final = "PALLAS_WORKER"
"""Names the descriptor of the link, in the environment of a worker process."""
MAX_WORKERS: Final = 64
_MAX_MESSAGE: Final = 128 * 1024
_MAX_DESCRIPTORS: Final = 4
_ANSWER_S: Final = 10.0
_PR_SET_PDEATHSIG: Final = 1


def send(link: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one message. Raises OSError if it is too long, or the other side has ended or does not read."""
    raw = json.dumps(message).encode()
    if len(raw) > _MAX_MESSAGE:
        raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
    socket.send_fds(link, [raw], descriptors, socket.MSG_DONTWAIT)


def receive(link: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message and its descriptors; None if the other side has ended."""
    try:
        raw, descriptors, _, _ = socket.recv_fds(link, _MAX_MESSAGE, _MAX_DESCRIPTORS)
    except ConnectionError:
        return None
    if not raw:
        return None
    message: dict[str, Any] = json.loads(raw)
    return message, descriptors


class WorkerProcess:
    """Worker ``number`` of ``workers``, counted from 1. ``is_first``: what exists once runs in it.

    What a fleet makes for itself is the same in all processes of one start: ``seal`` signs the ids of
    sessions, ``own_token`` is for the fleet's calls of its own agents, ``control_token`` for its control API
    on loopback.
    """

    def __init__(self, link: socket.socket, setup: Mapping[str, Any], table: int) -> None:
        self.number: int = setup["number"]
        self.workers: int = setup["workers"]
        key = bytes.fromhex(setup["key"])
        self.own_token = hmac.digest(key, b"own token", hashlib.sha256).hex()
        # Used in the fleet's loop; the ends of sessions elsewhere are noted in the link's thread.
        self.seal = SessionSeal(key, self, ended=lambda conversation: self._send({"ended": [conversation]}))
        self.control_token: str = setup["token"]
        self.watchdog: float = setup["watchdog"]
        self.parent: int = setup["parent"]
        self.shares = ConnectionShares(table, self.workers, self.number)
        os.close(table)
        self._link = link
        self._answers: queue.SimpleQueue[tuple[dict[str, Any], list[int]] | None] = queue.SimpleQueue()
        self._asking = threading.Lock()
        self._asked = 0
        self._handlers: dict[str, Callable[[Any], object]] = {}

    @classmethod
    def joined(cls, environ: MutableMapping[str, str] = os.environ) -> Self | None:
        """This process as a worker; None if no parent of workers started it. Takes the variable away.

        From now on this process does not outlive its parent.
        """
        descriptor = environ.pop(VARIABLE, "")
        if not descriptor.isdecimal():
            return None
        link = socket.socket(fileno=int(descriptor))
        link.set_inheritable(False)
        if (found := receive(link)) is None:
            sys.exit(1)
        setup, (table,) = found
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != setup["parent"]:  # it ended before we asked
            sys.exit(1)
        return cls(link, setup, table)

    @property
    def is_first(self) -> bool:
        """Whether this process runs what exists once: programs, the offline model."""
        return self.number == 1

    def listen(self, hear: Callable[[str], None]) -> None:
        """Call ``hear`` with each order of the parent (``go``, ``stop``, ``reload``, ``now``), in a thread.

        The end of the parent is the order ``now``.
        """
        threading.Thread(target=self._read, args=(hear,), name="worker link", daemon=True).start()
        self._send({"listens": True})

    def report(self, news: Mapping[str, str | int]) -> None:
        """Tell the parent what a fleet of one process tells systemd. Does nothing once the parent ended."""
        self._send({"report": dict(news)})

    def drains(self, seconds: float) -> None:
        """Tell the parent how long runs in flight have: a reload may have changed that."""
        self._send({"drains": seconds})

    def bind(self, host: str, port: int, owner: str) -> socket.socket:
        """The socket of that port, which the parent binds once for all. Raises Fault (CONFIG) as ``bind``."""
        with self._asking, suppress(OSError, queue.Empty):
            self._asked += 1
            send(self._link, {"bind": [host, port, owner], "id": self._asked})
            while (found := self._answers.get(timeout=_ANSWER_S)) is not None:
                answer, descriptors = found
                if answer.get("id") != self._asked:  # too late for the one who asked
                    for each in descriptors:
                        os.close(each)
                    continue
                if problem := answer.get("problem"):
                    raise Fault(FaultType.CONFIG, problem)
                sock = socket.socket(fileno=descriptors[0])
                sock.set_inheritable(False)
                return sock
        raise Fault(FaultType.CONFIG, f"{owner}: port {port}: the parent of the workers does not answer")

    def closed(self, host: str, port: int) -> None:
        """Tell the parent that this process serves that port no more."""
        self._send({"closed": [host, port]})

    def tell(self, topic: str, body: Any) -> None:
        """Have all other processes hear ``body`` under that topic, as ``OtherWorkers``."""
        self._send({"tell": [topic, body]})

    def hear(self, topic: str, handler: Callable[[Any], object]) -> None:
        """Call ``handler`` with what other processes tell under that topic, in the running event loop."""
        loop = asyncio.get_running_loop()
        self._handlers[topic] = lambda body: loop.call_soon_threadsafe(handler, body)

    def _send(self, message: Mapping[str, Any]) -> None:
        with suppress(OSError):
            send(self._link, message)

    def _read(self, hear: Callable[[str], None]) -> None:
        while (found := receive(self._link)) is not None:
            if order := found[0].get("order"):
                hear(order)
            elif ended := found[0].get("ended"):
                for conversation in ended:
                    self.seal.note_end(conversation)
            elif told := found[0].get("tell"):
                topic, body = told
                with suppress(RuntimeError):  # its loop has just ended
                    self._handlers.get(topic, _unheard)(body)
            else:
                self._answers.put(found)
        self._answers.put(None)
        hear("now")


def _unheard(_: Any) -> None:
    """What is sent to a process that has no fleet yet is lost."""
