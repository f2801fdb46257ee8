"""The fleet's side of an agent in a process of its own."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pallas import __version__
from pallas.child_environment import agent_environment, withheld_in
from pallas.config import AgentConfig, Project
from pallas.model import Fault, FaultType
from pallas.model.fingerprint import salt
from pallas.model.safe_text import one_line
from pallas.telemetry.trace import current_run

from ..base import Emit, ExecutorInfo, Turn, TurnResult
from ..fastagent.peers import PeerCalls
from ..fastagent.peers_fleet import FleetPeers
from ..peers import PeerPort
from .asking import Asker
from .link import CANCEL_TIMEOUT, Asked, Link
from .messages import PROTOCOL, Begin, Do, Done, Doubt, Failed, Forget, Given, Result, Run
from .spawn import Spawned
from .threads import Book, pieces

log = logging.getLogger(__name__)

# Seconds that a process has beyond what it was given for parking.
_LEEWAY: Final = 1.0
# Seconds that a process takes to end by force, and that one has at least to end in order.
_FORCE: Final = 0.7
_LEAST: Final = 0.5


class ProcessExecutor:
    """Has turns answered by a process of its own; whatever becomes of that, the fleet goes on.

    A run that is cancelled is cancelled there, and one whose process ends fails with a Fault (TRANSPORT)
    that says how it ended.
    """

    def __init__(self, project: Project, config: AgentConfig) -> None:
        self._project = project
        self._config = config
        self._name = config.name
        self._info = ExecutorInfo()
        self._sources: dict[str, str] = {}
        self._ledger = Book()
        self._link: Link | None = None
        self._started = False
        self._closing = False
        self._tell_failed: Callable[[str], None] | None = None
        self._peers: PeerCalls | None = None
        self._doubted: frozenset[str] = frozenset()

    @property
    def pid(self) -> int | None:
        """The process that answers, None while there is none."""
        return self._link.process.pid if self._link is not None and not self._link.over else None

    @property
    def info(self) -> ExecutorInfo:
        """What is known of the agent."""
        return self._info

    def problems(self) -> tuple[str, ...]:
        """Downstreams that the last attempt to make an instance could not reach."""
        return self._link.state.problems if self._link is not None else ()

    def doubt(self, servers: frozenset[str]) -> None:
        """A health probe did not reach these downstreams; the others answer, as far as is known."""
        if self._started and self._link is not None and servers != self._doubted:
            self._doubted = servers
            self._link.send(Doubt(tuple(sorted(servers))))

    @property
    def waiting(self) -> int:
        """Runs that wait for a free instance."""
        return self._link.state.waiting if self._link is not None and not self._link.over else 0

    def reach_peers(self, port: PeerPort) -> None:
        """Its peers are asked through this, here; to be said before ``load``."""
        if self._config.peers:
            self._peers = FleetPeers(port, self._name)

    async def load(self, *, fresh: bool = False) -> None:
        """Start the process and import the agent's code there, always anew.

        Raises Fault: CONFIG with file, line and reason, TRANSPORT when the process ends.
        """
        if self._link is not None or self._closing:
            raise Fault(FaultType.INTERNAL, f"{self._name} was loaded already")
        await self._spawn()

    async def start(self) -> None:
        """Enter the harness there and warm one instance. Raises Fault.

        A process that ended since it was loaded is replaced by one with the same code, whatever its modules'
        files say now.
        """
        if self._closing:
            raise Fault(FaultType.TRANSPORT, f"{self._name} is stopping")
        link = self._link
        if link is not None and link.over:
            await link.close()
            link = None
        if link is None:
            link = await self._spawn()
        await link.do("start")
        self._started = link.answering = True

    async def _spawn(self) -> Link:
        try:
            env = await asyncio.to_thread(agent_environment, self._project, self._config.env)
            process = await Spawned.start(self._name, self._project.root, env=env)
        except OSError as error:
            raise Fault(
                FaultType.TRANSPORT, f"{self._name}: no process can be started: {error.strerror or error}"
            ) from error
        link = self._link = Link(
            self._name, process, learned=self._learned, broke=self._broke, peers=self._peers
        )
        self._ledger = Book()
        project, key = self._for_itself(), salt().hex()
        link.send(Begin(__version__, PROTOCOL, self._name, project, key, self._sources))
        try:
            await link.do("load")
        except Fault as fault:
            if hint := withheld_in([fault.message], env):
                log.warning("%s: %s", self._name, hint, extra={"agent": self._name})
            raise
        link.loaded = True
        return link

    async def run(self, turn: Turn, emit: Emit) -> TurnResult:
        """Answer one turn there. Raises Fault."""
        link = self._link
        if link is None:
            raise Fault(FaultType.TRANSPORT, f"{self._name} is not running")
        trace = current_run()
        wire = trace.wire if trace is not None else None
        call, asked = link.ask(emit, wire)
        if self._peers is not None:
            asked.asker = Asker(turn, trace.context if trace is not None else None, emit)
            link.tell_peers()
        ledger = self._ledger
        run = Run(
            call=call,
            run_id=turn.run_id,
            agent=turn.agent,
            text=turn.text,
            images=turn.images,
            lease=turn.lease,
            keep=ledger.begin(turn.lease, turn.history),
            principal=turn.principal,
            stream_text=turn.stream_text,
            trace=trace.context if trace is not None else None,
            record=wire is not None,
            durable=turn.durable,
            params=turn.params,
            bearer=turn.bearer,
            provider=turn.provider,
        )
        result: TurnResult | None = None
        try:
            await link.room()  # it may be busy with something else
            for part in pieces(turn.history[run.keep :], whole=False):
                link.send(Given(call, part))
                await link.room()
            link.send(run)
            # Not awaited itself: a cancel would end the answer too, and that is still to come.
            await asyncio.wait({asked.answer})
            result = _result(asked)
        except asyncio.CancelledError:
            await link.see_off(call, asked, CANCEL_TIMEOUT)
            raise
        except Fault:
            link.drop(call, asked)
            raise
        finally:
            link.answered(call, asked)
            made = result.messages if result is not None else None
            replaces = result is not None and result.replaces
            for lease in ledger.end(turn.lease, turn.history, made, replaces=replaces):
                link.send(Forget(lease))
        return result

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """``tell`` hears how the process ended, or why the agent there can answer no more."""
        self._tell_failed = tell

    def release(self, lease: str) -> None:
        """Let go of what the process keeps for a conversation."""
        self._ledger.forget(lease)
        if self._link is not None:
            self._link.send(Forget(lease, over=True))

    async def park(self, timeout: float) -> None:
        """End the instances there; the process stays, with all that it has loaded. Raises Fault."""
        self._started = False
        link = self._link
        if link is None or link.over:
            return
        try:
            async with asyncio.timeout(timeout + _LEEWAY):
                await link.do("park", timeout)
        except TimeoutError:
            why = f"was ended, because it could not be parked within {timeout:g} s"
            link.process.end(why, force=True)
            raise Fault(FaultType.TRANSPORT, f"{self._name}: its process {why}") from None

    async def close(self, timeout: float) -> None:
        """End the process: in order, in about ``timeout`` seconds, else by force.

        One that was never loaded, or does not react, is not waited for.
        """
        self._started, self._closing = False, True
        link = self._link
        if link is None:
            return
        link.leaving = True
        try:
            ordered = max(_LEAST, timeout - _FORCE)
            if link.loaded and await link.reacts(min(CANCEL_TIMEOUT, timeout / 2)):
                call, asked = link.ask()
                link.send(Do(call, "close", ordered))
                await link.first(asked.answer, timeout=ordered)
                if asked.answer.done():
                    await link.first(timeout=_LEAST)
                link.answered(call, asked)
        finally:  # also for who is cancelled in the middle of it
            link.process.end(force=True)
        await link.close()

    def _for_itself(self) -> Project:
        """The project as the process needs it: without who may call, and without the other agents."""
        own = replace(self._config, auth=None)
        return replace(self._project, auth=None, agents={self._name: own}, warnings=())

    def _learned(self, said: Done | Failed) -> None:
        if said.info is not None:
            # One that was given its sources has not read them.
            self._info = replace(said.info, files=self._info.files) if self._sources else said.info
        if isinstance(said, Done) and said.sources:
            self._sources = said.sources

    def _broke(self, reason: str) -> None:
        if self._started and not self._closing:
            self._started = False
            if self._tell_failed is not None:
                self._tell_failed(one_line(reason, 300))


def _result(asked: Asked) -> TurnResult:
    answer = asked.answer.result()
    if not isinstance(answer, Result):
        raise Fault(FaultType.INTERNAL, "the agent's process gave no result")
    return TurnResult(
        texts=answer.texts,
        messages=tuple(piece.message() for piece in asked.made),
        usage=answer.usage,
        stop_reason=answer.stop_reason,
        replaces=answer.replaces,
        backend=answer.backend,
        notices=answer.notices,
    )
