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
    """A prompt that runs in a session or waits for its turn."""

    run_id: str
    work: asyncio.Task[RunResult] | None = None
    stopped: bool = False  # whether it was cancelled


@dataclass(slots=True, eq=False)
class SessionLease:
    """A session. Times are Unix seconds."""

    id: str
    agent: str
    kind: AgentKind
    owner: Principal
    answering: LiveAgent  # the agent that it was opened with; no other may answer
    handle: str  # that of its conversation
    created_at: float
    used_at: float
    provider: str = ""
    params: Params = NO_PARAMS
    begun: bool = False  # whether that conversation exists
    joined: str = ""  # the handle of an existing thread; others may use its instance
    thread: str = ""  # its durable thread, once that is known
    turns: int = 0
    failed: str = ""  # why it takes no more prompts
    had_prompt: bool = False  # whether it had a prompt since it was opened
    opening: bool = True  # it cannot be used yet
    end_reason: str = ""  # why it ended, empty before
    is_published: bool = False  # whether its state was published
    left: Executor | None = None  # the executor of its agent when that left the fleet
    last: Executor | None = None  # the executor when it was opened or last asked
    prompts: list[SessionPrompt] = field(default_factory=list)  # those under way; the first one runs
    turn: Conversation = field(init=False)  # gives its prompts their turns
    quiet: asyncio.Event = field(default_factory=asyncio.Event)  # set while no prompt is under way

    def __post_init__(self) -> None:
        self.quiet.set()
        # Not the conversation of its thread, which others may use: it orders the prompts of this session.
        self.turn = Conversation(None, self.owner)

    @property
    def executor(self) -> Executor | None:
        """The executor that answers in it, or did last; never that of another agent that took the
        name since.
        """
        now = self.left or self.answering.executor
        taken = self.last is not None and now is not None and type(now) is not type(self.last)
        return self.last if taken else now

    @property
    def busy(self) -> bool:
        """Whether a prompt is under way."""
        return bool(self.prompts)

    @property
    def status(self) -> SessionStatus:
        """Its status (SPEC 7.4)."""
        if self.failed:
            return "failed"
        if self.busy:
            return "busy"
        return "idle" if self.had_prompt else "active"

    @property
    def reaped(self) -> bool:
        """Whether it can expire: a session with a worker or a remote agent never does."""
        return self.kind in IN_PROCESS

    def expires_at(self, limits: SessionLimits) -> float:
        """When it expires if it is not used, 0 for never."""
        if not self.reaped:
            return 0.0
        return min(self.created_at + limits.ttl, self.used_at + limits.idle)

    def expired(self, limits: SessionLimits, now: float) -> bool:
        """Whether it is due to end; never while a prompt is under way (X17)."""
        if self.opening or self.busy or not self.reaped:
            return False
        return now >= self.expires_at(limits)

    def record(self, limits: SessionLimits) -> SessionRecord:
        """The session as a record."""
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
