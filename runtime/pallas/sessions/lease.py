"""One session while it is open."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

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
    StoredSession,
)
from pallas.model.discovery import IN_PROCESS
from pallas.runs.conversations import Conversation

from .session_metadata import metadata_of


@dataclass(slots=True, eq=False)
class SessionPrompt:
    """A prompt that runs in a session or waits for its turn."""

    run_id: str
    work: asyncio.Task[RunResult] | None = None
    stopped: bool = False  # whether it was cancelled
    is_claimed: bool = False  # other fleets know of it


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
    metadata: Mapping[str, Any] = field(default_factory=dict)  # as its client gave it
    provider: str = ""
    params: Params = NO_PARAMS
    begun: bool = False  # whether that conversation exists
    joined: str = ""  # the handle of an existing thread; others may use its instance
    thread: str = ""  # its durable thread, once that is known
    turns: int = 0
    failed: str = ""  # why it takes no more prompts
    had_prompt: bool = False  # whether it had a prompt since it was opened
    opening: bool = True  # it cannot be used yet
    is_own: bool = True  # this fleet opened it
    is_known: bool = False  # its executor here was told that it begins, and not yet that it is over
    is_stored: bool = False  # other fleets, and the next life of this one, can go on with it
    is_changed: bool = False  # since it was stored last
    saving: int = 0  # how many writes of it are under way
    saves: int = 0  # how many are over
    over: str = ""  # the run whose end is to be stored with it
    elsewhere: str = ""  # the run of a prompt that is under way in another fleet
    end_reason: str = ""  # why it ended, empty before
    is_settled: bool = False  # whether the clean-up after its end has begun
    is_published: bool = False  # whether its state was published
    left: Executor | None = None  # the executor of its agent when that left the fleet
    last: Executor | None = None  # the executor when it was opened or last asked
    current: SessionPrompt | None = None  # the one that has its turn, of a session that is stored
    prompts: list[SessionPrompt] = field(default_factory=list)  # those under way; the first one runs
    turn: Conversation = field(init=False)  # gives its prompts their turns
    beginning: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while its executor is told of it
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
        """Whether a prompt is under way here."""
        return bool(self.prompts)

    @property
    def unclaimed(self) -> SessionPrompt | None:
        """The prompt that has its turn, if it began while no other fleet used the ledger."""
        return self.current if self.current is not None and not self.current.is_claimed else None

    @property
    def status(self) -> SessionStatus:
        """Its status."""
        if self.failed:
            return "failed"
        if self.busy or self.elsewhere:
            return "busy"
        return "idle" if self.had_prompt else "active"

    @property
    def reaped(self) -> bool:
        """Whether it can expire: a session with a worker or a remote agent never does."""
        return self.kind in IN_PROCESS

    def use(self, now: float) -> None:
        """It is used now."""
        self.used_at = now

    def expires_at(self, limits: SessionLimits) -> float:
        """When it expires if it is not used, 0 for never."""
        if not self.reaped:
            return 0.0
        return min(self.created_at + limits.ttl, self.used_at + limits.idle)

    def expired(self, limits: SessionLimits, now: float) -> bool:
        """Whether it is due to end; never while a prompt is under way."""
        if self.opening or self.busy or self.elsewhere or not self.reaped:
            return False
        return now >= self.expires_at(limits)

    @property
    def stored(self) -> StoredSession:
        """The session as it is stored."""
        return StoredSession(
            self.id,
            self.agent,
            self.kind,
            self.owner.id,
            self.handle,
            json.dumps(self.metadata),
            self.created_at,
            self.used_at,
            self.begun,
            self.thread,
            self.failed,
            self.had_prompt,
            self.turns,
        )

    @contextmanager
    def being_saved(self) -> Iterator[None]:
        """Store the session while the block runs."""
        self.saving += 1
        try:
            yield
        finally:
            self.saving -= 1
            self.saves += 1

    def refresh(self, found: StoredSession, saves: int = 0) -> None:
        """Go by what is stored, unless this fleet has something newer to store, or has stored it since it
        was read. ``saves`` is the attribute before that.
        """
        self.elsewhere = found.run if all(each.run_id != found.run for each in self.prompts) else ""
        self.used_at = max(self.used_at, found.used_at)
        if self.is_changed or self.saving or self.saves != saves:
            return
        self.take(json.loads(found.metadata))
        self.handle, self.begun, self.thread = found.handle, found.begun, found.thread
        self.failed, self.had_prompt, self.turns = found.failed, found.had_prompt, found.turns

    def take(self, metadata: Mapping[str, Any]) -> None:
        """Go by this metadata."""
        read = metadata_of(metadata)
        self.metadata, self.provider, self.params = read.metadata, read.provider, read.layer
        self.joined = read.thread

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
