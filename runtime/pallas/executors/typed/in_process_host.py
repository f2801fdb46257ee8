"""A typed handler's code in this process."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from pallas.config import AgentConfig, Project
from pallas.config.files import shown
from pallas.config.project_imports import find_imports, sought
from pallas.executors.fastagent.import_thread import run_in_import_thread
from pallas.executors.fastagent.read_files import Reads, noting
from pallas.executors.handler.handler_faults import words
from pallas.invocation import Completer, Completion, Invocation, LLMResponse, handling
from pallas.messaging.messaging_port import Delivery, HandlerReply
from pallas.model import Fault, FaultType
from pallas.payloads import NotTaken, PayloadFault
from pallas.telemetry.trace_context import working_as

from .handler_ports import HandlerFacts
from .payload_conversion import InvalidReply, bind_payload, reply_of
from .scratch import scratches_of
from .typed_handler_loader import LoadedHandler, load_handler

log = logging.getLogger(__name__)


class InProcessHost:
    """As ``HandlerHost``: calls the handler in the fleet's event loop, in the caller's task."""

    def __init__(self, project: Project, config: AgentConfig) -> None:
        self._project = project
        self._config = config
        self._files: tuple[str, ...] = ()
        self._loaded: LoadedHandler | None = None
        self._scratches = scratches_of(project.root, config.name)
        self._leases = CompleterLeases()

    @property
    def pid(self) -> int | None:
        """None: it runs in this process."""
        return None

    @property
    def files(self) -> tuple[str, ...]:
        """The project's files that it was made of so far."""
        return self._files

    async def load(self, *, fresh: bool) -> HandlerFacts:
        """Import and check it. Raises Fault (CONFIG) with file and line."""
        config, root = self._config, self._project.root
        assert config.handler is not None
        assert config.handler.typed is not None
        reads = Reads(self._project)
        for path in dict.fromkeys((config.handler.path, config.handler.typed.payload)):
            reads.add(*(await asyncio.to_thread(find_imports, root, path.partition(":")[0])).files)
        try:
            with noting(reads):
                loaded = await run_in_import_thread(
                    lambda: load_handler(self._project, config, fresh=fresh), f"import {config.name}", root
                )
        except Fault as fault:
            if isinstance(fault.__cause__, ImportError):
                reads.add(*sought(root, fault.__cause__))
            raise
        finally:
            reads.finish()
            self._files = tuple(sorted(shown(root, Path(path)) for path in reads.files))
        self._loaded = loaded
        return HandlerFacts(loaded.payload, loaded.defined)

    async def start(self) -> None:
        """Do nothing: a function is ready once it is loaded."""

    async def handle(self, delivery: Delivery) -> HandlerReply:
        """As ``HandlerHost.handle``."""
        if (loaded := self._loaded) is None:
            raise Fault(FaultType.TRANSPORT, f"{self._config.name} is not running")
        try:
            payload = bind_payload(delivery.payload, loaded)
        except NotTaken as fault:
            self._log_refusal(fault)
            raise
        metadata = replace(
            delivery.metadata
        )  # a copy: the fleet does not read what the handler writes into it
        frame = delivery.frame
        with (
            self._scratches.lent(frame) as storage,
            self._leases.lease(frame, delivery.completer) as completer,
        ):
            invocation = Invocation(
                agent=self._config.name,
                thread_id=metadata.thread_id,
                run_id=delivery.run_id,
                completer=completer,
                scratch=storage,
                todos=delivery.todos,
            )
            with handling(invocation), working_as(self._config.name):
                try:
                    returned = await loaded.handler(payload, metadata)
                except PayloadFault as fault:  # raised by its own code, and not about its reply
                    raise InvalidReply(fault.message) from fault
        return reply_of(returned)

    def _log_refusal(self, refusal: NotTaken) -> None:
        cause = refusal.__cause__
        log.warning(
            "%s: a message was refused: %s (%s: %s)",
            self._config.name,
            refusal.message,
            type(cause).__name__,
            words(cause),
            extra={"agent": self._config.name},
        )

    def ended(self, frame: str) -> None:
        """Drop the frame's scratch storage, and end its leases on models."""
        self._scratches.drop(frame)
        self._leases.end(frame)

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """Do nothing: a function does not break by itself."""

    async def park(self, timeout_s: float) -> None:
        """Do nothing: it holds only its code."""

    async def close(self, timeout_s: float) -> None:
        """Do nothing: it holds only its code."""


class CompleterLeases:
    """Lends handlers their way to ask models, for the time in which they handle a message.

    A task of a handler may outlive the message. It can ask no models then: no run would stand for that.
    """

    def __init__(self) -> None:
        self._leased: dict[str, set[_LeasedCompleter]] = {}

    @contextmanager
    def lease(self, frame: str, completer: Completer | None) -> Iterator[Completer | None]:
        """Lend ``completer`` to the handler of a message of that frame, for this block."""
        if completer is None:
            yield None
            return
        leased = _LeasedCompleter(completer)
        self._leased.setdefault(frame, set()).add(leased)
        try:
            yield leased
        finally:
            leased.end()
            if others := self._leased.get(frame):
                others.discard(leased)
                if not others:
                    del self._leased[frame]

    def end(self, frame: str) -> None:
        """End all leases of a frame that is over, even if a cancelled handler goes on."""
        for leased in self._leased.pop(frame, ()):
            leased.end()


class _LeasedCompleter:
    """Asks as ``asks`` does until ``end``, which also cuts off questions that are under way."""

    __slots__ = ("_asks", "_under_way")

    def __init__(self, asks: Completer) -> None:
        self._asks: Completer | None = asks
        self._under_way: set[asyncio.Timeout] = set()

    async def complete(self, completion: Completion) -> LLMResponse:
        """As ``Completer.complete``. Raises Fault, also once the lease has ended."""
        asks = self._asks
        if asks is None:
            _too_late()
        try:
            async with asyncio.timeout(None) as scope:
                self._under_way.add(scope)
                try:
                    return await asks.complete(completion)
                finally:
                    self._under_way.discard(scope)
        except TimeoutError:
            if not scope.expired():
                raise
            _too_late()

    def end(self) -> None:
        """End the lease: the message is handled."""
        self._asks = None
        for scope in self._under_way:
            scope.reschedule(asyncio.get_running_loop().time())


def _too_late() -> NoReturn:
    raise Fault(
        FaultType.PROTOCOL,
        "complete(): the message has been handled; models are asked only until then",
    )
