"""Messages between the typed handlers of a fleet. Their delivery is imported when it is first needed."""

import asyncio
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pallas.config import Project
from pallas.config.kinds import PumpLimits
from pallas.config.listeners import has_console
from pallas.model import Envelope, Event, Principal, Usage

from .agent_factory import is_typed
from .context import FleetContext

if TYPE_CHECKING:  # the readers of XML, and what asks models: most fleets need neither
    from pallas.llm.llm_service import LlmService
    from pallas.messaging.delivery import First, MessageDelivery
    from pallas.messaging.messaging_port import Emit
    from pallas.payloads import Payload

    from .message_peers import MessagePeers

BOOT_SECONDS: Final = 10.0
"""Seconds that a message from outside waits, while a fleet starts, for the start messages of handlers."""


class HandlerMessages:
    """Delivers messages between handlers. Belongs to the fleet's event loop.

    Implements ``pallas.executors.typed.handler_ports.MessagingPort``, through which typed handlers send.
    """

    def __init__(self, context: FleetContext) -> None:
        self._context = context
        self._usage: dict[str, Usage] = {}
        self._booted = asyncio.Event()

    @cached_property
    def peers(self) -> "MessagePeers":
        """Who takes messages."""
        from .message_peers import MessagePeers

        return MessagePeers(self._context, lambda: self.llms)

    @cached_property
    def messaging(self) -> "MessageDelivery":
        """What delivers them."""
        from pallas.messaging.delivery import MessageDelivery

        return MessageDelivery(self.peers)

    @cached_property
    def llms(self) -> "LlmService":
        """Answers the questions of handlers to models."""
        from pallas.llm.llm_service import LlmService

        return LlmService(lambda: self._context.project, self._context.hub.publish)

    def envelopes(self, run_id: str, after: int = 0, limit: int | None = None) -> tuple[Envelope, ...]:
        """The kept messages between handlers of a run with a number above ``after``, the lowest first."""
        return self.messaging.envelopes(run_id, after, limit) if "messaging" in vars(self) else ()

    def adopt(self, project: Project) -> None:
        """Go by the project's files, which were read again."""
        if "llms" in vars(self):
            self.llms.adopt(project)

    async def boot(self) -> None:
        """The first message, once every typed handler was started or failed to (HC-25).

        Where an organism brings a console of its own, that gets its prompts then, until it disconnects.
        """
        try:
            typed = [agent for agent in self._context.agents.all if is_typed(agent.config)]
            for agent in typed:
                await agent.settled.wait()
            if typed:
                await self.messaging.boot(self._publish)
        finally:
            self._booted.set()
        if typed and has_console(self._context.project.agents):
            from pallas.console.console_listener import converse

            await converse(self._context.hub, self, self.peers)

    async def close(self) -> None:
        """End the messages and questions under way."""
        if "messaging" in vars(self):
            await self.messaging.close()
        if "llms" in vars(self):
            await self.llms.close()

    def _publish(self, event: Event) -> None:
        self._context.hub.publish(event)

    # As ``MessagingPort``

    @property
    def limits(self) -> PumpLimits:
        """As the project's files say now."""
        return self._context.project.messages

    async def exchange(self, first: "First", emit: "Emit") -> "Payload | None":
        """Deliver a message, and all that follow. Raises Fault."""
        if not self._booted.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(BOOT_SECONDS):
                    await self._booted.wait()
        run, asker = first.asker.run_id, first.asker
        # A thread has one budget, under every name and with every token that continues it (HC-33).
        own = f"{asker.agent}\0{first.thread}"
        conversation = self.peers.budget_above(run) or own
        with self.peers.counting(run, conversation) as tally:
            try:
                return await self.messaging.exchange(first, emit)
            finally:
                self._usage[run] = tally.usage

    def principal(self, run_id: str) -> Principal:
        """Who asked for a run in flight."""
        return self._context.principal_of(run_id)

    def used(self, run_id: str) -> Usage:
        """What its handlers asked models for; it is forgotten with that."""
        return self._usage.pop(run_id, Usage())
