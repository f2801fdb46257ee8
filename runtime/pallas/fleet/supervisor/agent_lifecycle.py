"""Starts one agent, hears when it breaks, and starts it again; one thing at a time."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from typing import Any, Final, Protocol

from pallas.config import AgentConfig, Project
from pallas.deadlines import cancel_and_wait, done_within
from pallas.executors import Executor
from pallas.model import FAILED_STATES, AgentState, Fault, FaultType, Notice
from pallas.model.redaction import redact_text
from pallas.runs.kernel import Kernel
from pallas.safe_text import one_line

from ..agent_factory import MakeExecutor
from ..reload.agent_version import AgentVersion
from ..versions import AgentVersions
from .failure_outcome import lost, passes
from .restart_policy import RestartPolicy
from .supervisor import Supervisor

# Seconds that the canceller of a start waits for its clean-up, which then goes on by itself.
_GRACE: Final = 1.0


class StartAttempt:
    """Runs one thing at a time with a limit; one that is given up cleans up in a task of its own."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None

    async def within[T](self, seconds: float, work: Coroutine[Any, Any, T], name: str) -> T:
        """What ``work`` returns or raises. Raises TimeoutError after ``seconds``: then it is cancelled.

        The clean-up of the one before, where that was given up, does not count. Neither does time in which
        something else blocked the event loop (``done_within``).
        """
        try:
            await self.finish()
        except BaseException:
            work.close()
            raise
        task = asyncio.create_task(work, name=name)
        self._task = task
        try:
            await done_within(seconds, task)
        except asyncio.CancelledError:
            await cancel_and_wait(task, seconds=_GRACE)
            raise
        if not task.done():
            task.cancel()
            raise TimeoutError
        return task.result()

    async def finish(self) -> None:
        """Wait until an abandoned attempt has cleaned up; the caller bounds it."""
        if self._task is not None and not self._task.done():
            await asyncio.wait({self._task})

    async def close(self) -> None:
        """Abandon the attempt under way, in about a second."""
        if self._task is not None and not self._task.done():
            await cancel_and_wait(self._task, seconds=_GRACE)
        if self._task is not None and self._task.done():
            with suppress(BaseException):
                self._task.exception()  # no caller asks for it any more


# What runs in flight have beyond their own limit, when another executor takes over.
_LEEWAY: Final = 5.0


class LifecycleHost(Protocol):
    """The agent that is started and ended."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    @property
    def project(self) -> Project:
        """The project as the agent knows it."""
        ...

    @property
    def config(self) -> AgentConfig:
        """The agent's configuration."""
        ...

    @property
    def state(self) -> AgentState:
        """Where the agent is."""
        ...

    @property
    def reason(self) -> str:
        """Why it is in that state, in one line."""
        ...

    @property
    def settled(self) -> asyncio.Event:
        """Set once its first start is over."""
        ...

    @property
    def executor(self) -> Executor | None:
        """The executor that answers now."""
        ...

    async def connecting(self, executor: Executor) -> None:
        """``executor`` is loaded and connects now."""
        ...

    def ready(self, detail: str = "") -> None:
        """Take runs from now on."""
        ...

    def fail(
        self,
        reason: str,
        cause: BaseException | None = None,
        *,
        transient: bool = False,
        kind: FaultType | None = None,
    ) -> None:
        """It failed; with ``transient`` its restart policy decides what follows."""
        ...

    def move_to(self, state: AgentState, detail: str = "") -> None:
        """Enter a state."""
        ...

    async def check_health(self) -> None:
        """Look at its health now."""
        ...

    def publish(self, notice: Notice) -> None:
        """Tell operators what its executor noticed."""
        ...


class AgentLifecycle:
    """Starts and ends the executor of ``agent``; its tasks end with it. One event loop only.

    Nothing is started while something else is started, stopped or swapped. An executor that fails by itself
    fails the agent, whose restart policy (``RestartPolicy``) decides whether ``Supervisor`` starts it again.
    """

    def __init__(self, agent: LifecycleHost, kernel: Kernel, make: MakeExecutor) -> None:
        self._agent = agent
        self._kernel = kernel
        self._make = make
        self._turn = asyncio.Lock()
        self._attempt = StartAttempt()
        self._broken: list[tuple[Executor, str]] = []
        self._chores: set[asyncio.Task[None]] = set()
        self.versions = AgentVersions(agent.name, kernel, self._made)
        self.supervisor = Supervisor(agent.name, RestartPolicy(agent.config.restart), self._start_again)

    @property
    def seconds_left(self) -> float:
        """What runs in flight have when another version takes over."""
        return self._agent.config.run_timeout + _LEEWAY

    async def start(self, *, fresh: bool) -> bool:
        """As ``FleetAgent.start``."""
        async with self.taken():
            self.versions.forgive()
            await self._try(fresh=fresh)
        await self._agent.check_health()
        return self._agent.state is AgentState.READY

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Hold the agent for a start or stop by hand: no restart by itself, and failures are forgotten."""
        await self.supervisor.forget()
        async with self._turn:
            await self.supervisor.forget()  # it may have broken while this waited
            yield

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the agent while another version replaces what answers, or what failed.

        Until that is over no restart begins by itself; if it fails, a restart that was due is made up for.
        """
        left = await self.supervisor.put_off()
        agent = self._agent
        try:
            async with self._turn:
                yield
        finally:
            if left is not None and agent.state is not AgentState.READY:
                agent.move_to(
                    AgentState.BACKOFF, f"{agent.reason}; it is started again in {round(left, 2):g} s"
                )
                self.supervisor.resume(left)

    async def end(self) -> None:
        """End what answers; only while ``taken``. Returns when what it ran is gone."""
        await self.versions.end()
        await self._attempt.finish()

    def note_ready(self) -> None:
        """Note that the executor takes runs; it may have broken on its way."""
        self.supervisor.well()
        broken, self._broken = self._broken, []
        for executor, reason in broken:
            if executor is self._agent.executor:
                asyncio.get_running_loop().call_soon(self._broke, executor, reason)

    def own(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Run ``work`` until it is over or the agent ends."""
        task = asyncio.create_task(work, name=f"{self._agent.name}: {what}", context=Context())
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def close(self) -> None:
        """End everything, within seconds. Runs in flight must be over."""
        await self.supervisor.close()
        for task in self._chores:
            task.cancel()
        await self.versions.close()
        await self._attempt.close()

    async def _start_again(self) -> None:
        async with self._turn:
            if self._agent.state is AgentState.BACKOFF:
                await self._try(fresh=False)
        await self._agent.check_health()

    async def _try(self, *, fresh: bool) -> None:
        agent = self._agent
        if agent.state is AgentState.READY:  # another start was first
            return
        if agent.executor is not None:  # it broke
            await self.versions.end()
        await self._attempt.finish()
        if not fresh:  # two harnesses of one definition would end one another's servers
            await self.versions.all_ended()
        self._broken.clear()
        limit = agent.config.start_timeout
        try:
            version = await self._attempt.within(limit, self._version(fresh=fresh), f"start {agent.name}")
        except Fault as fault:
            why = "; ".join(part for part in (fault.message, fault.cause) if part)
            agent.fail(why, fault.__cause__, transient=passes(fault), kind=fault.type)
        except TimeoutError:
            where = f"see what it waits for, or raise start_timeout at {agent.config.where}"
            agent.fail(f"it was still {agent.state.value} after {limit:g} s; {where}", transient=True)
        except Exception as error:
            agent.fail(f"{type(error).__name__}: {one_line(str(error))}", error, transient=passes(error))
        else:
            self.versions.switch_to(version, self.seconds_left)
            agent.ready(self._ready(fresh=fresh))
        finally:
            agent.settled.set()

    async def _version(self, *, fresh: bool) -> AgentVersion:
        """The version to start. One that broke is started once more as it was, without its new files."""
        agent = self._agent
        fell = self.versions.broken
        if fell is not None and self.versions.rested is fell:
            agent.move_to(AgentState.CONNECTING)
            return await self.versions.returning(fell)
        agent.move_to(AgentState.IMPORTING)
        return await self.versions.make(agent.project, agent.config, fresh=fresh, loaded=agent.connecting)

    def _ready(self, *, fresh: bool) -> str:
        if crashes := self.supervisor.crashes:
            return f"ready again after {crashes} failure{'s' if crashes > 1 else ''}"
        return "ready" if fresh else ""

    async def _made(self, project: Project, config: AgentConfig) -> Executor:
        executor = await self._make(project, config)
        executor.when_failed(lambda reason: self._broke(executor, reason))
        executor.when_noticed(self._agent.publish)
        return executor

    def _broke(self, executor: Executor, reason: str) -> None:
        """An executor can answer no more by itself."""
        agent = self._agent
        if executor is not agent.executor:  # it may be about to take over
            self._broken.append((executor, reason))
        elif agent.state is AgentState.READY:
            self.versions.break_current()
            agent.fail(reason, transient=True)
        after = self.supervisor.retry_after
        down = after is None and agent.state in FAILED_STATES
        fault = lost(agent.name, one_line(redact_text(reason), 300), after, down=down)
        self.own(self._end_broken(executor, fault), "end what broke")

    async def _end_broken(self, executor: Executor, fault: Fault) -> None:
        await self._kernel.break_off(self._agent.name, fault, executor)
        async with self._turn:
            if executor is self._agent.executor and self._agent.state in FAILED_STATES:
                await self.versions.end()
