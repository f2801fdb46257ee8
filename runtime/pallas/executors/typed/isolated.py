"""A typed handler's code in a process of its own, which the fleet trusts with nothing (SPEC 5.1)."""

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final

from pallas import __version__
from pallas.child_environment import bare_environment
from pallas.config import AgentConfig, Project
from pallas.messaging.port import Delivery, Reply
from pallas.model import Fault, FaultType
from pallas.model.codec import Undecodable, fault_of
from pallas.model.safe_text import one_line
from pallas.payloads import NotTaken, PayloadFault
from pallas.telemetry.log import redact_text

from ..process.spawn import Spawned
from .isolated_calls import Gone
from .isolated_files import drop_folder, hidden_from, scratch_folder
from .isolated_link import HandlerLink
from .isolated_messages import MAX_SOURCES, PROTOCOL, Begin, Failed, NotLoaded, Returned, frame_of
from .isolated_told import fault_of_load, paths
from .port import Learned
from .replies import Unfit

PROGRAM: Final = "pallas.executors.typed.inside"
"""What its process runs."""
# How often within so many seconds a process that the fleet ended is started again without further ado.
_AGAIN: Final = 5
_WITHIN: Final = 60.0
# Seconds for the last of a process that is to be replaced.
_LAST: Final = 1.0


class IsolatedHost:
    """As ``Host``: calls the handler in a process, which is given the message and gives one back.

    Where the fleet itself had to end the process (a handler that does not end when it is cancelled, one that
    takes too much memory, one that says what is no message), it starts another at once, and messages that
    were not begun go there. Where it ended by itself ``when_failed`` is told, as of any other process.
    """

    def __init__(self, project: Project, config: AgentConfig) -> None:
        assert config.handler is not None
        assert config.handler.typed is not None
        self._project = project
        self._config = config
        self._name = config.name
        self._path = config.handler.path
        self._own = config.handler.typed
        self._files: tuple[str, ...] = ()
        self._sources: dict[str, str] = {}
        self._learned: Learned | None = None
        self._link: HandlerLink | None = None
        self._mending: asyncio.Task[None] | None = None
        self._ends: deque[float] = deque(maxlen=_AGAIN)
        self._scratch: Path | None = None
        self._started = False
        self._closing = False
        self._tell_failed: Callable[[str], None] | None = None

    @property
    def pid(self) -> int | None:
        """The process that its code runs in, None while there is none."""
        return self._link.pid if self._link is not None and not self._link.over else None

    @property
    def files(self) -> tuple[str, ...]:
        """The project's files that it was made of so far."""
        return self._files

    async def load(self, *, fresh: bool) -> Learned:
        """Start the process and import the code there, always anew. Raises Fault: CONFIG with file and line,
        TRANSPORT where the process ends."""
        if self._learned is not None:
            return self._learned
        self._sources = {}
        self._learned = await self._spawn()
        return self._learned

    async def start(self) -> None:
        """Take messages from now on, in a new process with the same code where that of the load ended."""
        if self._closing:
            raise Fault(FaultType.TRANSPORT, f"{self._name} is stopping")
        if self._link is None or self._link.over:
            await self._leave(_LAST)
            self._learned = await self._spawn()
        self._started = True

    async def handle(self, delivery: Delivery) -> Reply:
        """What the handler says; cancelling it cancels the handler there. Raises Fault."""
        while True:
            link = await self._ready()
            try:
                said = await link.handle(delivery)
            except Gone as gone:
                if gone.again:  # it never came to the handler
                    continue
                raise gone.fault from None
            return self._reply(link, said)

    def ended(self, frame: str) -> None:
        """What is kept there for a frame goes."""
        if self._link is not None:
            self._link.drop(frame)

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """``tell`` hears how the process ended by itself, or that it had to be ended too often."""
        self._tell_failed = tell

    async def park(self, timeout: float) -> None:
        """End the process; another one with the same code may be started."""
        self._started = False
        await self._settle()
        await self._leave(timeout)

    async def close(self, timeout: float) -> None:
        """End the process for good: in order, in about ``timeout`` seconds, else by force."""
        self._started, self._closing = False, True
        await self._settle()
        await self._leave(timeout)

    # How it is done

    async def _spawn(self) -> Learned:
        project, own = self._project, self._own
        most = project.messages.bytes
        try:
            scratch = self._scratch = scratch_folder(self._scratch)
            process = await Spawned.start(
                self._name,
                scratch,
                program=PROGRAM,
                env=bare_environment({"TMPDIR": str(scratch), **own.env}),
                frame=frame_of(most) + 2 * MAX_SOURCES,
            )
        except (OSError, ValueError) as error:  # the latter for a value of `env:` that none can have
            why = getattr(error, "strerror", None) or type(error).__name__
            text = f"no process can be started: {why}"
            raise Fault(FaultType.TRANSPORT, text) from error
        link = self._link = HandlerLink(self._name, process, own.memory, self._broke)
        where = self._config.where
        said, payload = await link.load(
            Begin(
                version=__version__,
                protocol=PROTOCOL,
                agent=self._name,
                root=str(project.root),
                handler=self._path,
                payload=own.payload,
                file=where.file,
                line=where.line,
                level=project.log_level,
                lag=project.loop_lag,
                memory=own.memory,
                bytes=most,
                sources=self._sources,
                listener=own.listener,
                hidden=hidden_from(project),
                own_files=(str(scratch), *(str(project.root / each) for each in own.files)),
            )
        )
        if not self._sources:  # one that was given its sources has not read them
            self._files = paths(said.files)
        if isinstance(said, NotLoaded) or payload is None:
            assert isinstance(said, NotLoaded)
            raise fault_of_load(said.message, said.place)
        self._sources = said.sources
        return Learned(payload, one_line(said.place, 300))

    async def _ready(self) -> HandlerLink:
        """The process that takes messages now, once there is one. Raises Fault."""
        while self._started and (link := self._link) is not None:
            if (mending := self._mending) is not None:
                await asyncio.wait({mending})
            elif not link.over:
                return link
            elif link.told.is_set():
                break
            else:
                await link.told.wait()
        raise Fault(FaultType.TRANSPORT, f"{self._name} is not running; try again in a moment")

    def _broke(self, reason: str, ours: bool) -> None:
        if not self._started or self._closing or self._mending is not None:
            return
        now = monotonic()
        often = len(self._ends) == _AGAIN and now - self._ends[0] < _WITHIN
        if ours and not often:
            self._ends.append(now)
            self._mending = asyncio.create_task(self._mend(), name=f"{self._name}: another process")
        else:
            self._fail(f"{reason}; the fleet ended {_AGAIN} of them in a minute" if ours else reason)

    async def _mend(self) -> None:
        """Another process in place of the one that the fleet ended."""
        try:
            await self._leave(_LAST)
            async with asyncio.timeout(self._config.start_timeout):
                self._learned = await self._spawn()
        except TimeoutError:
            self._fail(f"no process took its place within {self._config.start_timeout:g} s")
        except Fault as fault:
            self._fail(fault.message)
        finally:
            self._mending = None

    def _fail(self, reason: str) -> None:
        self._started = False
        if self._tell_failed is not None:
            self._tell_failed(one_line(reason, 300))

    async def _settle(self) -> None:
        if (mending := self._mending) is not None:
            mending.cancel()
            await asyncio.wait({mending}, timeout=_LAST)

    async def _leave(self, timeout: float) -> None:
        if self._link is not None:
            await self._link.leave(timeout)
        drop_folder(self._scratch)
        self._scratch = None

    def _reply(self, link: HandlerLink, said: Returned | Failed) -> Reply:
        if isinstance(said, Failed):
            raise self._failure(said)
        most = self._project.messages.bytes
        if said.data is not None:
            return Reply(raw=said.data.encode("latin-1", "replace")[: most + 1])
        if said.said is None:
            return Reply()
        try:
            kind = link.kinds.of(said.said.key)
            xml = said.said.xml.encode()
        except (Undecodable, UnicodeEncodeError) as error:
            link.end(f"was ended, because it sent what is no message ({one_line(str(error))})", broken=True)
            raise Fault(FaultType.PROTOCOL, "its process sent what is no message") from None
        return Reply(((said.said.to, kind.parse(xml, limit=most)),))

    def _failure(self, said: Failed) -> Fault | Unfit:
        """What is said of a handler that did not answer; its own words only where they are to itself."""
        match said.how:
            case "no-answer":
                return Unfit(one_line(redact_text(said.message), 1_000))
            case "unfit":
                text = one_line(said.message, 1_000) or "what it returned does not fit its class"
                return PayloadFault(text, field=one_line(said.field, 200))
            case "not-taken" if self._learned is not None:
                return NotTaken(self._learned.payload.name)
            case "fault":
                return fault_of(said.fault, "it failed, and does not say how; see the log")
            case "cancelled":
                return Fault(FaultType.UPSTREAM, "cancelled its own work; nothing was answered")
            case _:
                cause = one_line(redact_text(said.message), 1_000)
                return Fault(FaultType.UPSTREAM, "failed; the log has the details", cause=cause)
