"""One session while it is open."""

import asyncio
from dataclasses import dataclass, field

from pallas.config.kinds import SessionLimits
from pallas.executors import Executor
from pallas.executors.live_agent import LiveAgent
from pallas.model import (
    NO_PARAMS,
    AgentKind,
    Params,
    Principal,
    RunResult,
    SessionRecord,
    SessionStatus,
)
from pallas.runs.agent_directory import IN_PROCESS
from pallas.runs.conversations import Conversation


@dataclass(slots=True, eq=False)
class SessionPrompt:
    """One that runs in a session, or waits for its turn. ``stopped`` says that somebody cancelled it."""

    run_id: str
    work: asyncio.Task[RunResult] | None = None
    stopped: bool = False


@dataclass(slots=True, eq=False)
class SessionLease:
    """A session. Times are Unix seconds.

    ``answering`` is the very agent that it was opened with. ``handle`` is that of its conversation, which is
    new until ``begun``; ``thread`` the durable thread of that, once it is known. ``joined`` is the handle of
    a thread that was there before: others may use its instance. ``prompts`` are those under way, what runs
    first; ``turn`` is whose turn it is among them. ``failed`` is why it takes none any more.
    ``asked`` once something was said since it was opened; ``opening`` while it cannot be used yet; ``over``
    is why it has ended, empty before. ``quiet`` is set while no prompt is under way, ``told`` once its state
    was said; ``left`` is what answered for its agent when that left the fleet, ``last`` what did when it was
    opened or asked last.
    """

    id: str
    agent: str
    kind: AgentKind
    owner: Principal
    answering: LiveAgent
    handle: str
    created_at: float
    used_at: float
    provider: str = ""
    params: Params = NO_PARAMS
    begun: bool = False
    joined: str = ""
    thread: str = ""
    turns: int = 0
    failed: str = ""
    asked: bool = False
    opening: bool = True
    over: str = ""
    told: bool = False
    left: Executor | None = None
    last: Executor | None = None
    prompts: list[SessionPrompt] = field(default_factory=list)
    turn: Conversation = field(init=False)
    quiet: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.quiet.set()
        # Not that of its thread, in which others may run: only whose turn it is here.
        self.turn = Conversation(None, self.owner)

    @property
    def executor(self) -> Executor | None:
        """What answers in it, or did last: never an agent of another kind that took the name since."""
        now = self.left or self.answering.executor
        taken = self.last is not None and now is not None and type(now) is not type(self.last)
        return self.last if taken else now

    @property
    def busy(self) -> bool:
        """Whether a prompt is under way."""
        return bool(self.prompts)

    @property
    def status(self) -> SessionStatus:
        """Where it is in its life (SPEC 7.4)."""
        if self.failed:
            return "failed"
        if self.busy:
            return "busy"
        return "idle" if self.asked else "active"

    @property
    def reaped(self) -> bool:
        """Whether it can expire: one with a worker or a remote agent never does."""
        return self.kind in IN_PROCESS

    def expires_at(self, limits: SessionLimits) -> float:
        """When it expires if nothing happens, 0 for never."""
        if not self.reaped:
            return 0.0
        return min(self.created_at + limits.ttl, self.used_at + limits.idle)

    def expired(self, limits: SessionLimits, now: float) -> bool:
        """Whether it is to be ended now; never while a prompt is under way (X17)."""
        if self.opening or self.busy or not self.reaped:
            return False
        return now >= self.expires_at(limits)

    def record(self, limits: SessionLimits) -> SessionRecord:
        """As a value."""
        return SessionRecord(
            id=self.id,
            agent=self.agent,
            status=self.status,
            created_at=self.created_at,
            last_activity_at=self.used_at,
            expires_at=self.expires_at(limits),
            owner=self.owner.id,
            provider=self.provider,
            thread=self.thread,
            turns=self.turns,
            reason=self.failed,
        )
