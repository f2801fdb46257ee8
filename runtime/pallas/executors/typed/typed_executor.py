"""The executor of typed handlers, which is also the endpoint for the messages between handlers."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from uuid import NAMESPACE_URL, uuid4, uuid5

from pallas.config import AgentConfig, Project
from pallas.config.kinds import TypedConfig
from pallas.config.unnamed_models import refuse_unnamed_model
from pallas.executors.handler.handler_faults import raised
from pallas.executors.handler.handler_tasks import GRACE, HandlerTasks
from pallas.messaging.delivery import CALLER, First
from pallas.messaging.frames import is_canonical
from pallas.messaging.messaging_port import Delivery, HandlerReply, MessageSender
from pallas.model import Fault, FaultType, Message, TextDelta
from pallas.payloads import PayloadFault, PayloadType, read_text
from pallas.safe_text import sanitize
from pallas.telemetry.trace_context import current_run

from ..base import Emit, Executor, ExecutorInfo, ExecutorTurn, TurnResult
from .handler_ports import HandlerFacts, HandlerHost, MessagingPort
from .in_process_host import InProcessHost
from .payload_conversion import InvalidReply

log = logging.getLogger(__name__)


class TypedExecutor(Executor):
    """A typed handler of a fleet. Belongs to one event loop.

    As an executor it reads a caller's text as a message, has the fleet deliver it, and writes the answer as
    text. As a ``HandlerEndpoint`` it handles the messages that are delivered to this agent, of any run.
    ``host`` runs its code; by default the one that the agent's ``isolation`` says.
    """

    def __init__(
        self, project: Project, config: AgentConfig, messaging: MessagingPort, host: HandlerHost | None = None
    ) -> None:
        assert config.typed is not None
        self._project = project
        self._config = config
        self._own: TypedConfig = config.typed
        self._messaging = messaging
        self._host = host if host is not None else _host(project, config)
        self._facts: HandlerFacts | None = None
        self._info = ExecutorInfo(capabilities=config.capabilities)
        self._work = HandlerTasks(config.name)
        self._started = False
        self._finish_timeout_s = self._own.timeout

    # As an executor

    @property
    def pid(self) -> int | None:
        """The process that runs its code, None for this one."""
        return self._host.pid

    @property
    def info(self) -> ExecutorInfo:
        """The facts about it; its payload is known once ``load`` has run."""
        return self._info

    @property
    def full(self) -> bool:
        """Whether it handles as many messages as one handler may (HC-31), so that the next one waits."""
        return len(self._work) >= self._own.at_once(self._messaging.limits)

    async def load(self, *, fresh: bool = False) -> None:
        """Import its code and check it (HC-1). Raises Fault (CONFIG) with file and line."""
        if self._facts is not None:
            return
        try:
            facts = await self._host.load(fresh=fresh)
        finally:
            self._info = replace(self._info, files=self._host.files)
        await asyncio.to_thread(refuse_unnamed_model, self._project, self._config)
        self._facts = facts
        self._info = replace(
            self._info, defined=facts.defined, providers=(), names_models=True, payload=facts.payload
        )

    async def start(self) -> None:
        """Take messages from now on. Loads first if needed, and raises what ``load`` raises."""
        await self.load()
        await self._host.start()
        self._started, self._finish_timeout_s = True, self._own.timeout

    async def run(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        """Answer a message from outside in the form it has; without an answer the text is empty (HC-5).

        Raises Fault: PayloadFault for a text that is no message of its class, which no handler sees (HC-2).
        """
        facts = self._facts
        if facts is None or not self._started:
            raise Fault(FaultType.TRANSPORT, f"{self.name} is not running")
        if turn.images:
            raise PayloadFault(f"{self.name} takes no images: send {facts.payload.name} as JSON or XML")
        payload, form = read_text(facts.payload, turn.text, limit=self._messaging.limits.bytes)
        first = First(
            to=self.name,
            payload=payload,
            asker=self._asker(turn),
            sender=turn.sender or CALLER,
            thread=self._thread(turn),
            nested=turn.depth > 0,
        )
        try:
            answer = await self._messaging.exchange(first, emit)
        finally:
            usage = self._messaging.used(turn.run_id)
        text = "" if answer is None else sanitize(answer.type.write(answer, form))
        if text:
            emit(TextDelta(run_id=turn.run_id, agent=turn.agent, text=text))
        messages = Message("user", turn.text), Message("assistant", text)
        return TurnResult((text,), messages, usage)

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """``tell`` is called when its own process ended."""
        self._host.when_failed(tell)

    def hurry(self, seconds: float) -> None:
        """Give the messages of other agents' runs that it still handles so many seconds: its agent stops."""
        self._finish_timeout_s = min(seconds, self._own.timeout)

    async def park(self, timeout_s: float) -> None:
        """Take no more messages; those that are handled now have ``timeout_s`` seconds."""
        await self._finish(timeout_s)
        await self._host.park(GRACE)

    async def close(self, timeout_s: float) -> None:
        """As ``park``, for good."""
        await self._finish(timeout_s)
        await self._host.close(GRACE)

    # As an endpoint

    @property
    def name(self) -> str:
        """The agent's name."""
        return self._config.name

    @property
    def shown(self) -> str:
        """The name that other handlers use: that of its group if it shares one."""
        return self._own.group or self.name

    @property
    def payload(self) -> PayloadType:
        """The type of its messages. Raises Fault before it is loaded."""
        if self._facts is None:
            raise Fault(FaultType.TRANSPORT, f"{self.name} is not running")
        return self._facts.payload

    @property
    def peers(self) -> frozenset[str]:
        """The agents it may send to, as it was loaded; the fleet knows the current ones."""
        return frozenset(self._config.peers)

    @property
    def forwards_freely(self) -> bool:
        """Whether it is a listener that is no agent and names no peers."""
        return self._own.forwards_freely

    @property
    def is_agent(self) -> bool:
        """Whether agents.yaml says ``agent: true``."""
        return self._own.agent

    @property
    def timeout(self) -> float:
        """Seconds for one message."""
        return self._own.timeout

    @property
    def description(self) -> str:
        """The agent's description."""
        return self._config.description

    async def invoke(self, delivery: Delivery) -> HandlerReply:
        """Have it handle a message, in a task of its own. Raises Fault as ``HandlerEndpoint.invoke``.

        An exception of the handler is reported by its kind; its text and traceback stay in the log (HC-22).
        """
        if not self._started:
            raise Fault(FaultType.TRANSPORT, f"{self.name} is not running")
        work = self._host.handle(delivery)
        task, what = self._work.own(work, f"{self.name}: {delivery.frame}"), f"a message of {delivery.run_id}"
        try:
            await asyncio.wait({task}, timeout=delivery.seconds)
        except asyncio.CancelledError:
            await self._work.leave(task, what)
            raise
        if not task.done():
            await self._work.leave(task, what)
            raise Fault(
                FaultType.TIMEOUT,
                f"{self.name} took longer than {delivery.seconds:g} s for a message; raise its timeout in "
                "agents.yaml, or have it do less at once",
            )
        if task.cancelled():
            raise Fault(FaultType.UPSTREAM, f"{self.name} cancelled its own work; nothing was answered")
        error = task.exception()
        if error is None:
            return task.result()
        if isinstance(error, PayloadFault):
            raise error
        if isinstance(error, InvalidReply):
            raise self._invalid(error)
        raise raised(self.name, error, self._project.root) from None

    def ended(self, frame: str) -> None:
        """Drop the frame's scratch storage (HC-18)."""
        self._host.ended(frame)

    # How it is done

    def _invalid(self, error: InvalidReply) -> Fault:
        log.error(
            "%s (%s) failed: %s",
            self.name,
            self._info.defined,
            error,
            exc_info=error,
            extra={"agent": self.name},
        )
        return Fault(
            FaultType.UPSTREAM, f"{self.name} gave no answer that can be passed on; the log has the details"
        )

    def _asker(self, turn: ExecutorTurn) -> MessageSender:
        run = current_run()
        return MessageSender(
            run_id=turn.run_id,
            agent=turn.agent,
            principal=self._messaging.principal(turn.run_id),
            trace=run.context if run is not None else None,
            depth=turn.depth,
            bearer=turn.bearer if self._own.forward_inbound_auth else None,
        )

    def _thread(self, turn: ExecutorTurn) -> str:
        """Return the UUID of the run's first frame: the caller's handle if it is one, else one of the thread.

        That one is a hash of the thread's id, because the id itself would open the caller's conversation.
        """
        if is_canonical(turn.handle):
            return turn.handle
        return str(uuid5(NAMESPACE_URL, turn.thread) if turn.thread else uuid4())

    async def _finish(self, timeout_s: float) -> None:
        self._started = False
        patience = max(0.0, min(timeout_s - GRACE, self._finish_timeout_s))
        await self._work.end(GRACE, grace_s=patience)


def _host(project: Project, config: AgentConfig) -> HandlerHost:
    if config.isolation != "process":
        return InProcessHost(project, config)
    from .isolated_host import IsolatedHost

    host: HandlerHost = IsolatedHost(project, config)
    return host
