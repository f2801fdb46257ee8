"""The MCP servers of one instance: which of them are missing, and how they are reconnected."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from mcp import MCPError

from pallas.access.bearer_lease import LeaseSlot, context_of
from pallas.deadlines import cancel_and_wait
from pallas.downstreams.connection import Connection
from pallas.downstreams.opening import is_closed
from pallas.downstreams.sse_streams import NoEndpointError
from pallas.mcp_client.stdio_seam import RIGHT_AFTER, end_of, how_it_ended, what_it_printed
from pallas.model import CredentialSource, Fault, FaultType, ServerMissing
from pallas.safe_text import one_line
from pallas.telemetry.trace_context import bind_agent, outside_of_runs
from pallas.tools_lock.tool_gate import ToolGate

from ..base import Emit, ExecutorTurn
from .downstreams_seam import Downstreams, downstreams_of, instruct
from .fastagent_faults import refused_fault, without_options

log = logging.getLogger(__name__)

# Seconds that a run waits for servers that were missing before; they failed at once the last time.
SETTLE_SECONDS: Final = 2.0
# Seconds that a run waits for one that was lost since the last run: a program takes a while to start.
LOST_SECONDS: Final = 10.0
# Seconds for one attempt in the background: a command may have to be downloaded first.
RETRY_SECONDS: Final = 120.0
# Seconds between two looks at whether all servers are still connected, also while nobody asks anything.
LOOK_SECONDS: Final = 5.0
_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 15.0
# Only after so long without a retry the pauses are short again: some programs end whenever they were started.
_CALM_SECONDS: Final = 60.0
_REFUSED: Final[Mapping[CredentialSource, str]] = {
    "forwarded": "refused the caller's bearer (HTTP {status})",
    "configured": "refused the configured credential (HTTP {status})",
    "none": "asks for a credential (HTTP {status})",
}


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a server is missing, in a few words. ``refused`` is the HTTP status and credential of a 401 or
    403.

    ``hangs``: it did not answer at all. ``ended``: it was ended for its invalid output. ``detail`` is one
    line for operators, ``error`` what the last attempt raised.
    """

    why: str
    refused: tuple[int, CredentialSource] | None = None
    hangs: bool = False
    detail: str = ""
    ended: bool = False
    error: Exception | None = field(default=None, repr=False, compare=False)


class Servers:
    """Connects the missing servers of an instance: before each run, and in the background until they are
    back. One that is lost while nobody asks is noticed within ``LOOK_SECONDS``.

    ``unconfigured`` maps servers that are never called to the reason. ``forwarded`` are those that get the
    caller's bearer: without a run there is none, so only runs connect them. ``slot`` is the instance's.
    ``lost`` is called with a server that is missing and why, ``failed`` with the number of an attempt to
    connect it and why it failed, ``returned`` with one that was reconnected and how, and without either when
    all list other tools. ``gate`` compares what they list with the lock: when
    that is another one, a run that begins has them list again.
    """

    def __init__(
        self,
        agent: str,
        agents: Iterable[Any],
        slot: LeaseSlot,
        *,
        unconfigured: Mapping[str, str],
        forwarded: frozenset[str],
        skipped: frozenset[str] = frozenset(),
        lost: Callable[[str, str], None] = lambda server, why: None,
        failed: Callable[[str, int, str], None] = lambda server, attempt, why: None,
        returned: Callable[[str, str], None] = lambda server, how: None,
        gate: ToolGate | None = None,
    ) -> None:
        self._agent = agent
        self._slot = slot
        # The outcome of connections opened for all runs belongs to no single run.
        self._idle_slot = LeaseSlot()
        self._forwarded = forwarded
        self._unconfigured = unconfigured
        self._failed = failed
        self._returned = returned
        self._gate = gate
        self._lock_version = gate.version if gate is not None else None
        self._agents = tuple(each for each in agents if downstreams_of(each) is not None)
        found = tuple(each for agent in agents if (each := downstreams_of(agent)) is not None)
        self._downstreams = tuple((each, each.at_start) for each in found)
        for each in found:
            each.changed = self._changed
        self._why: dict[str, Missing] = {}
        # How the programs of those ended that are missing, and how often they were tried since.
        self._ends: dict[str, str] = {}
        self._failures: Counter[str] = Counter()
        self._attempts: dict[str, asyncio.Task[None]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._pause, self._tried_at = _PAUSE, 0.0
        self._closed = False
        self._doubted: frozenset[str] = frozenset()
        self._checked: set[str] = set()
        self._told: frozenset[str] = frozenset()
        # What is missing from the start was never lost: the health has it.
        self._lost: Callable[[str, str], None] = lambda server, why: None
        for downstreams, _ in self._downstreams:
            for name, error in downstreams.errors.items():
                self._why[name] = self._reason(name, error, slot)
        for name in skipped:
            self._why.setdefault(name, Missing("does not answer", hangs=True))
        self.look()
        self._lost = lost
        self._looking = _apart(self._look_on(), "look after servers") if self._downstreams else None
        # The servers that are missing in the agents' instructions.
        self._unsaid = frozenset(self.missing())

    def missing(self) -> dict[str, Missing]:
        """The servers that are not connected now, by name, with the reason."""
        found: dict[str, Missing] = {}
        for downstreams, wanted in self._downstreams:
            for name in wanted:
                if name in self._unconfigured:
                    found[name] = Missing(self._unconfigured[name])
                elif not downstreams.is_connected(name):
                    why = self._why.get(name) or _unreachable(self._ends.get(name, ""))
                    is_starting = why.hangs and downstreams.is_starting(name)
                    found[name] = self._starting(name) if is_starting else why
        return found

    def _starting(self, name: str) -> Missing:
        """What is said of a program that has not answered yet."""
        printed = what_it_printed(self._agent, one_line(name, 80))
        words = f"; its stdout has lines that are not JSON-RPC messages: {printed}" if printed else ""
        return Missing(f"is still starting{words}", hangs=True)

    def connections(self) -> Iterator[tuple[str, Connection]]:
        """Yield the connections that were made, open or not, with the servers' names."""
        for downstreams, _ in self._downstreams:
            yield from downstreams.connections()

    def retried(self, server: str) -> asyncio.Task[None] | None:
        """Return the attempt to connect a server that is missing; None if it is not retried."""
        return self._attempt(server) if not self._closed and server in self._retried() else None

    def doubt(self, names: frozenset[str]) -> None:
        """Note that a health probe did not reach these: the next run checks them once before it relies on
        them."""
        self._checked &= names
        self._doubted = names

    async def settle(self) -> dict[str, Missing]:
        """Retry the missing servers for a run that begins; return those that are still missing.

        A server that did not answer at all the last time is not waited for.
        """
        missing = self.missing()
        doubted = [name for name in self._doubted - self._checked if name not in missing]
        self._checked.update(doubted)
        tried = {
            name: self._attempt(name)
            for name, each in missing.items()
            if name not in self._unconfigured and not each.hangs
        }
        tried |= {name: self._attempt(name, doubted=True) for name in doubted if self._calls(name)}
        for name in missing.keys() - tried.keys() - self._unconfigured.keys():
            self._attempt(name)  # the result is for a later run
        lost = [task for name, task in tried.items() if name not in self._why]
        if tried:
            await asyncio.wait(tried.values(), timeout=SETTLE_SECONDS)
            if lost:
                await asyncio.wait(lost, timeout=LOST_SECONDS - SETTLE_SECONDS)
            for name, task in tried.items():
                if not task.done():
                    self._why[name] = Missing("does not answer", hangs=True)
        missing = self.look()
        is_relocked = await self._follow_lock()
        if (
            is_relocked or self._unsaid != missing.keys()
        ):  # between two runs: the instruction must not change in the middle of one
            self._unsaid = frozenset(missing)
            for agent in self._agents:
                await instruct(agent)
        return missing

    async def _follow_lock(self) -> bool:
        """List again if the lock is another one than at the last time; return whether it is."""
        if self._gate is None or self._lock_version == (version := self._gate.version):
            return False
        self._lock_version = version
        for downstreams, _ in self._downstreams:
            await downstreams.list_again(LOST_SECONDS)
        self._returned("", "")
        return True

    def look(self) -> dict[str, Missing]:
        """Return the servers that are missing now, and start retrying them in the background."""
        self._log_changes()
        self._keep_trying()
        return self.missing()

    async def close(self) -> None:
        """Cancel the pending attempts."""
        self._closed = True
        tasks = {*self._attempts.values(), *filter(None, (self._watch, self._looking))}
        await cancel_and_wait(*tasks, seconds=10.0)

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def _log_changes(self) -> None:
        """Log each server that is missing once, until it is connected again."""
        before, self._told = self._told, frozenset(self.missing())
        for name in before - self._told:
            self._log_back(name)
        for name in self._told - before:
            if words := how_it_ended(self._agent, one_line(name, 80)):
                last = self._last_line(name)
                self._ends[name] = f"its program {words}" + (f": {last}" if last else "")
            self._lost(name, self._log_missing(name, self.missing()[name]))

    def _changed(self) -> None:
        """Hear that a server was connected, also in the middle of a run, or lists other things."""
        self.look()
        self._returned("", "")

    def _reason(self, name: str, error: Exception, slot: LeaseSlot) -> Missing:
        ended = how_it_ended(self._agent, one_line(name, 80)) if is_closed(error) else ""
        return _why(error, slot.refused.get(name), ended)

    def _last_line(self, name: str) -> str:
        """Return what the program of a server wrote to stderr last, if that is read."""
        readers = (found.link.stderr for server, found in self.connections() if server == name)
        return next((reader.last_line() for reader in readers if reader is not None), "")

    def _log_missing(self, name: str, missing: Missing) -> str:
        """Log that a server is missing; return what the record says."""
        why = f"is missing: {missing.why}" + (f" ({missing.detail})" if missing.detail else "")
        self._log(logging.WARNING, name, why, missing.error)
        return why

    def _log(self, level: int, name: str, text: str, error: Exception | None = None) -> None:
        extra = {"agent": self._agent, "downstream": name}
        log.log(level, "%s: server %s %s", self._agent, one_line(name, 80), text, exc_info=error, extra=extra)

    def _keep_trying(self) -> None:
        if not self._closed and (self._watch is None or self._watch.done()) and self._retried():
            self._watch = _apart(self._try_again(), "connect servers again")

    def _retried(self) -> list[str]:
        return [
            name for name in self.missing() if name not in self._unconfigured and name not in self._forwarded
        ]

    async def _try_again(self) -> None:
        if monotonic() - self._tried_at > _CALM_SECONDS:
            self._pause = _PAUSE
        while names := self._retried():
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            self._tried_at = monotonic()
            # A server that does not answer must not keep the others from being tried.
            await asyncio.wait([self._attempt(name) for name in names], timeout=_LONGEST_PAUSE)

    def _calls(self, name: str) -> bool:
        return any(name in wanted for _, wanted in self._downstreams)

    def _attempt(self, name: str, *, doubted: bool = False) -> asyncio.Task[None]:
        """Return the task that connects that server, one at a time, without a run's context.

        One that is ``doubted`` is checked first, and reconnected if it does not answer. Only if the server
        gets the caller's bearer does the attempt belong to the run.
        """
        slot = self._slot if name in self._forwarded else self._idle_slot
        if (task := self._attempts.get(name)) is None or task.done():
            work = self._check(name, slot) if doubted else self._connect(name, slot)
            context = context_of(slot)
            context.run(bind_agent, self._agent)
            task = asyncio.create_task(work, name=f"connect {name}", context=context)
            self._attempts[name] = task
        return task

    async def _check(self, name: str, slot: LeaseSlot) -> None:
        for downstreams, wanted in self._downstreams:
            if name in wanted and not await downstreams.answers(name, SETTLE_SECONDS / 2):
                await self._connect(name, slot, lost=downstreams)

    async def _connect(self, name: str, slot: LeaseSlot, *, lost: Downstreams | None = None) -> None:
        slot.refused.pop(name, None)
        for downstreams, wanted in self._downstreams:
            is_new = downstreams is lost
            if name not in wanted or (not is_new and downstreams.is_connected(name)):
                continue
            error = await downstreams.connect(name, RETRY_SECONDS, is_new=is_new)
            if error is not None:
                self._why[name] = self._reason(name, error, slot)
                self._failures[name] += 1
                why = self._log_missing(name, self._why[name])
                self._failed(name, self._failures[name], why)
                return
        if name in self._told:
            self._told -= {name}
            self._log_back(name)

    def _log_back(self, name: str) -> None:
        """Log that a server that was missing is connected."""
        self._why.pop(name, None)
        self._ends.pop(name, None)
        failures = self._failures.pop(name, 0)
        how = "is connected again" + (
            f" after {failures} failed attempt{'s' if failures > 1 else ''}" if failures else ""
        )
        self._log(logging.INFO, name, how)
        self._returned(name, how)


def hanging_of(others: Iterable[Servers]) -> frozenset[str]:
    """Return the servers that did not answer at all the last time: a new instance connects them later."""
    found = (each for servers in others for each in servers.missing().items())
    return frozenset(name for name, missing in found if missing.hangs)


@asynccontextmanager
async def served(
    servers: Servers, turn: ExecutorTurn, emit: Emit, required: Collection[str]
) -> AsyncIterator[None]:
    """Connect the missing servers before the run, and report those still missing before and after it.

    Raises Fault if one of the ``required`` is missing.
    """
    reported: set[str] = set()

    def tell(missing: Mapping[str, Missing]) -> None:
        for name in missing.keys() - reported:
            reported.add(name)
            server, why = one_line(name, 80), missing[name].why
            emit(ServerMissing(run_id=turn.run_id, agent=turn.agent, server=server, why=why))

    missing = await servers.settle()
    tell(missing)
    if lacking := {name: each for name, each in missing.items() if name in required}:
        raise fault_for(lacking)
    try:
        yield
    finally:
        tell(servers.look())


def fault_for(missing: Mapping[str, Missing]) -> Fault:
    """Return the Fault of a run that requires these missing servers."""
    refused = {name: each.refused for name, each in missing.items() if each.refused is not None}
    if (fault := refused_fault(refused)) is not None:
        return fault
    names = ", ".join(one_line(name, 80) for name in missing)
    hints = {each.why for each in missing.values() if each.why.startswith("not configured")}
    if hints:
        return Fault(
            FaultType.CONFIG, f"downstream {names} is {'; '.join(sorted(hints))}; set it and restart"
        )
    ended = sorted({each.why for each in missing.values() if each.ended})
    why = f" ({one_line('; '.join(ended), 400)})" if ended else ""
    return Fault(
        FaultType.UPSTREAM,
        f"downstream {names} cannot be reached{why}; start it or correct its entry under mcp.servers",
        retryable=True,
    )


def _why(error: Exception, refused: tuple[int, CredentialSource] | None, ended: str) -> Missing:
    # fast-agent's own text says where to look, the last line of its details gives the error.
    details = without_options(str(getattr(error, "details", "")))
    lines = (details or str(error)).strip().splitlines()
    notes = getattr(error, "__notes__", ())  # what the server itself wrote to stderr
    detail = one_line((notes or lines or [type(error).__name__])[-1], 300)
    if ended:
        detail = f"its program {ended}" + (f": {detail}" if notes else "")
    if refused is not None:
        status, source = refused
        return Missing(_REFUSED[source].format(status=status), refused, detail=detail, error=error)
    if isinstance(error, TimeoutError):
        return Missing("does not answer", hangs=True, detail=detail, error=error)
    if reason := end_of(error):
        return Missing(reason, ended=True, detail=reason, error=error)
    if isinstance(error, MCPError) and not is_closed(error):
        return Missing("answers with an error", detail=detail, error=error)
    return _unreachable(detail, error)


def _unreachable(detail: str, error: Exception | None = None) -> Missing:
    """A server that answers, and yet is none, is not out of reach: what it does is said to everyone."""
    why = detail if RIGHT_AFTER in detail or isinstance(error, NoEndpointError) else "cannot be reached"
    return Missing(why, detail="" if why == detail else detail, error=error)


def _apart(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return asyncio.create_task(work, name=name, context=outside_of_runs())
