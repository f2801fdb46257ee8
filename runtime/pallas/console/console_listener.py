"""An organism's own console: a listener that gets its first prompt from the fleet (HC-26)."""

import logging
import uuid
from time import perf_counter
from typing import Any, Final

from pallas.config.listeners import CONSOLE
from pallas.contract import ConsolePrompt
from pallas.executors.typed.handler_ports import MessagingPort
from pallas.messaging.delivery import First
from pallas.messaging.messaging_port import MessageSender, MessagingPeers
from pallas.model import ANONYMOUS, Event, Fault, MessagePassed, Outcome, RunFinished, RunStarted
from pallas.payloads import Payload, PayloadType
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.trace_context import child_of

log = logging.getLogger(__name__)

MAX_FAILURES: Final = 3
"""After so many consecutive runs that end before a line was sent, the console gets no further prompt."""


async def converse(hub: EventHub, messages: MessagingPort, peers: MessagingPeers) -> None:
    """Prompt the listener until it returns None, which disconnects it; cancelling also ends it.

    A run that ends elsewhere, without a message to the console, is followed by another prompt.
    """
    output, failures, is_first = "", 0, True
    while failures < MAX_FAILURES:
        conversation = _Conversation(hub, messages, peers)
        try:
            await conversation.run(output, is_first=is_first)
            output = ""
        except Fault as fault:
            log.warning("%s: %s", CONSOLE, fault.message, extra={"agent": CONSOLE})
            output = f"{fault.system_code}: {fault.system_message}"
        if conversation.is_left and not output:
            log.info("%s: disconnected", CONSOLE, extra={"agent": CONSOLE})
            return
        is_first = False
        failures = 0 if conversation.lines else failures + 1
    log.warning("%s: no further prompt: it failed %d times", CONSOLE, failures, extra={"agent": CONSOLE})


class _Conversation:
    """One run of the console. ``lines`` counts the messages that it sent."""

    def __init__(self, hub: EventHub, messages: MessagingPort, peers: MessagingPeers) -> None:
        self._hub = hub
        self._messages = messages
        self._peers = peers
        self.lines = 0
        self.is_left = False

    async def run(self, output: str, *, is_first: bool) -> None:
        """Run until the listener has sent its lines. Raises Fault."""
        run_id, context = uuid.uuid4().hex[:12], child_of(None)
        self._hub.publish(
            RunStarted(
                run_id=run_id,
                agent=CONSOLE,
                preview="a console",
                trace_id=context.trace_id,
                span_id=context.span_id,
                surface="console",
            )
        )
        outcome: Outcome = "cancelled"
        began = perf_counter()
        try:
            asker = MessageSender(run_id, CONSOLE, ANONYMOUS, context)
            first = First(CONSOLE, self._prompt(output, is_first), asker, nested=True, home=CONSOLE)
            await self._messages.exchange(first, self._emit)
            outcome = "ok"
        except Fault:
            outcome = "error"
            raise
        finally:
            self._messages.used(run_id)
            seconds = perf_counter() - began
            self._hub.publish(RunFinished(run_id=run_id, agent=CONSOLE, outcome=outcome, seconds=seconds))

    def _emit(self, event: Event) -> None:
        if isinstance(event, MessagePassed) and event.route != "end":
            self.is_left = event.to == CONSOLE
            self.lines += event.sender == CONSOLE
        self._hub.publish(event)

    def _prompt(self, output: str, is_first: bool) -> Payload:
        """Return a prompt of the listener's own class, in the fields that it shares with ours.

        Raises Fault.
        """
        [endpoint] = self._peers.endpoints(CONSOLE)
        values: dict[str, Any] = {"output": output, "source": "system", "show_banner": is_first}
        names = {field.name for field in endpoint.payload.shape.fields}
        if endpoint.payload.name != ConsolePrompt.__name__:
            return PayloadType.of(ConsolePrompt).pack(ConsolePrompt(output, "system"))
        return endpoint.payload.pack({name: value for name, value in values.items() if name in names})
