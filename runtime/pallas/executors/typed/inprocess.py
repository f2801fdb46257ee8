"""A typed handler's code in this process."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pallas.config import AgentConfig, Project
from pallas.config.files import shown
from pallas.config.survey import sought, survey
from pallas.invocation import Invocation, handling
from pallas.messaging.port import Delivery, Reply
from pallas.model import Fault, FaultType
from pallas.payloads import NotTaken, PayloadFault

from ..fastagent.beside import beside
from ..fastagent.reads import Reads, noting
from ..handler.raising import words
from .binding import bound
from .lending import Lending
from .loading import Loaded, load
from .port import Learned
from .replies import Unfit, reply_of
from .scratch import scratches_of

log = logging.getLogger(__name__)


class InProcessHost:
    """As ``Host``: calls the handler in the fleet's loop. Whoever asks owns the task that it works in."""

    def __init__(self, project: Project, config: AgentConfig) -> None:
        self._project = project
        self._config = config
        self._files: tuple[str, ...] = ()
        self._loaded: Loaded | None = None
        self._scratches = scratches_of(project.root, config.name)
        self._lending = Lending()

    @property
    def pid(self) -> int | None:
        """None: it runs in this process."""
        return None

    @property
    def files(self) -> tuple[str, ...]:
        """The project's files that it was made of so far."""
        return self._files

    async def load(self, *, fresh: bool) -> Learned:
        """Import and check it. Raises Fault (CONFIG) with file and line."""
        config, root = self._config, self._project.root
        assert config.handler is not None
        assert config.handler.typed is not None
        reads = Reads(self._project)
        for path in dict.fromkeys((config.handler.path, config.handler.typed.payload)):
            reads.add(*(await asyncio.to_thread(survey, root, path.partition(":")[0])).files)
        try:
            with noting(reads):
                loaded = await beside(
                    lambda: load(self._project, config, fresh=fresh), f"import {config.name}", root
                )
        except Fault as fault:
            if isinstance(fault.__cause__, ImportError):
                reads.add(*sought(root, fault.__cause__))
            raise
        finally:
            reads.finish()
            self._files = tuple(sorted(shown(root, Path(path)) for path in reads.files))
        self._loaded = loaded
        return Learned(loaded.payload, loaded.defined)

    async def start(self) -> None:
        """It is ready as it is."""

    async def handle(self, delivery: Delivery) -> Reply:
        """As ``Host.handle``."""
        if (loaded := self._loaded) is None:
            raise Fault(FaultType.TRANSPORT, f"{self._config.name} is not running")
        try:
            payload = bound(delivery.payload, loaded)
        except NotTaken as fault:
            self._say_why(fault)
            raise
        metadata = replace(delivery.metadata)  # its own: whatever it writes into that, nobody reads
        frame = delivery.frame
        with (
            self._scratches.lent(frame) as storage,
            self._lending.lent(frame, delivery.completer) as completer,
        ):
            invocation = Invocation(
                agent=self._config.name,
                thread_id=metadata.thread_id,
                run_id=delivery.run_id,
                completer=completer,
                scratch=storage,
                todos=delivery.todos,
            )
            with handling(invocation):
                try:
                    returned = await loaded.handler(payload, metadata)
                except PayloadFault as fault:  # of its own making: nothing is wrong with what it returned
                    raise Unfit(fault.message) from fault
        return reply_of(returned)

    def _say_why(self, refusal: NotTaken) -> None:
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
        """The frame's storage goes, and models are asked for it no more."""
        self._scratches.drop(frame)
        self._lending.drop(frame)

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """Never told: a function does not break by itself."""

    async def park(self, timeout: float) -> None:
        """It holds nothing but its code."""

    async def close(self, timeout: float) -> None:
        """It holds nothing but its code."""
