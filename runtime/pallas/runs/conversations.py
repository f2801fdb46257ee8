"""Conversations in memory: their owners, their messages, and a lock that allows one run at a time."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from time import monotonic
from typing import Any, Final

from pallas.access.identity import is_secret, may_continue, other_identity
from pallas.access.identity import minted as minted
from pallas.model import Fault, FaultType, Message, Principal
from pallas.model.ids import mint
from pallas.model.refusals import not_found, queue_full
from pallas.model.token_estimate import tokens_of

# Conversations that an agent keeps; characters of text and pictures that those of all agents of a fleet take;
# how many runs may wait in one conversation, and how many seconds a run waits for its turn.
KEEP: Final = 10_000
KEEP_SIZE: Final = 256 * 1024 * 1024
QUEUE: Final = 100
QUEUE_TIMEOUT: Final = 1800.0
# A conversation that was not used for a day is forgotten.
IDLE_SECONDS: Final = 24 * 3600.0
MAX_HANDLE: Final = 200
# How many old conversations are checked when one is added: enough to shrink, without a pause.
_LOOKED_AT: Final = 8
_HANDLE: Final = "id:"
_SESSION: Final = "session:"


class Conversation:
    """What one principal and one agent said to each other, oldest first."""

    def __init__(
        self,
        key: str | None,
        principal: Principal,
        clock: Callable[[], float] = monotonic,
        *,
        handle: str = "",
    ) -> None:
        # The id of its thread, None for a throw-away conversation. Its lock, instance and budget are stored
        # under this key, no matter which name the caller used.
        self.key = key
        # The caller's own name for it, empty without one.
        self.handle = handle
        self.principal = principal
        # The names by which callers asked for it.
        self.names: set[str] = set()
        self.messages: tuple[Message, ...] = ()
        self.size = 0
        # An estimate.
        self.tokens = 0
        self.used = clock()
        self.queued = 0
        # Its id once the thread is in the ledger.
        self.thread = ""
        # Whether the messages of its thread are loaded.
        self.loaded = True
        # The index of its next row, None if that is not known.
        self.next: int | None = None
        # Whether it gets a thread in the ledger.
        self.durable = True
        # Whether it is that of one run that another run asked for.
        self.is_nested = False
        # The one to use in its place: the thread of its handle turned out to be another.
        self.successor: Conversation | None = None
        self._clock = clock
        self._held = 0
        self._turn = asyncio.Lock()
        self._arrival = asyncio.Lock()
        self._settled = asyncio.Event()
        self._settled.set()

    def is_thread(self, thread: str) -> None:
        """Bind it to a durable thread whose messages are not loaded yet."""
        self.thread, self.loaded = thread, False

    @property
    def busy(self) -> bool:
        """Whether a run is in it, waits for it, or is about to."""
        return self._turn.locked() or self.queued > 0 or self._held > 0

    @property
    def waits(self) -> bool:
        """Whether a run has to wait for its turn in it, and its thread is in the ledger."""
        return bool(self.thread) and self.durable and self._turn.locked()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep it busy in this block: it stays in memory, so no second lock is made for the same thread."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def hold(self, task: asyncio.Task[Any]) -> None:
        """Keep it busy until the task is done."""
        self._held += 1

        def release(_: object) -> None:
            self._held -= 1

        task.add_done_callback(release)

    @asynccontextmanager
    async def arrival(self, seconds: float | None = None) -> AsyncIterator[None]:
        """Let runs find their places one after the other, once that of the run before them is settled.

        Raises Fault (TIMEOUT) as ``turn``.
        """
        async with AsyncExitStack() as stack:
            with _in_time(seconds) as limit:
                async with asyncio.timeout(limit):
                    await stack.enter_async_context(self._arrival)
                    await self._settled.wait()
            yield

    def settle(self) -> None:
        """The run that has the turn has begun, or has a place among those that wait for the thread."""
        self._settled.set()

    @asynccontextmanager
    async def turn(self, seconds: float | None = None) -> AsyncIterator[None]:
        """Hold the right to run in this conversation, in order of arrival, waiting at most ``seconds``.

        Raises Fault: TRANSPORT when too many wait already, TIMEOUT when the turn does not come in time.
        """
        if self.queued >= QUEUE:
            raise queue_full(QUEUE)
        self.queued += 1
        try:
            with _in_time(seconds) as limit:
                async with asyncio.timeout(limit):
                    await self._turn.acquire()
        finally:
            self.queued -= 1
        self._settled.clear()
        try:
            yield
        finally:
            self._settled.set()
            self.used = self._clock()
            self._turn.release()


class ConversationMemory:
    """The bound that the conversations of all agents of a fleet share: characters of text and pictures."""

    def __init__(self, max_size: int = KEEP_SIZE) -> None:
        self._max_size = max_size
        self._agents: list[Conversations] = []

    @property
    def size(self) -> int:
        """What they take together."""
        return sum(each.size for each in self._agents)

    def join(self, conversations: "Conversations") -> None:
        """Count those of one more agent."""
        self._agents.append(conversations)

    def leave(self, conversations: "Conversations") -> None:
        """Count those of an agent no longer."""
        self._agents.remove(conversations)

    def make_room(self) -> None:
        """Forget the longest unused, of any agent. Only a few each time, so that no run waits for it."""
        for _ in range(_LOOKED_AT):
            if self.size <= self._max_size:
                return
            oldest = [
                (found.used, each) for each in self._agents if (found := each.oldest_idle()) is not None
            ]
            if not oldest:
                return
            min(oldest, key=lambda found: found[0])[1].forget_oldest()


class Conversations:
    """The conversations of one agent, each under the id of its thread and under all its other names.

    A name is what ``key_of`` returns. The least recently used are forgotten first; ``forgotten`` is called
    with the key of each. ``memory`` is the bound that they share with those of other agents. ``clock``
    returns seconds.
    """

    def __init__(
        self,
        max_idle: int = KEEP,
        memory: ConversationMemory | None = None,
        *,
        clock: Callable[[], float] = monotonic,
        forgotten: Callable[[str], None] = lambda key: None,
    ) -> None:
        self._clock = clock
        self._forgotten = forgotten
        self._max_idle = max_idle
        self._memory = memory or ConversationMemory()
        self._memory.join(self)
        self.size = 0
        self._all: OrderedDict[str, Conversation] = OrderedDict()
        self._names: dict[str, Conversation] = {}
        # Threads of open sessions that are no longer in memory.
        self._sessions: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, name: str) -> bool:
        return self._living(name) is not None

    def open(self, name: str | None, principal: Principal, *, new: bool = True) -> Conversation:
        """The conversation of that name, created if there is none and it may be ``new``.

        None: a throw-away one.

        Raises Fault (UPSTREAM, "not found") if there is none, or if the principal may not continue it.
        """
        if name is None:
            return Conversation(None, principal, self._clock)
        found = self._living(name)
        if found is None:
            if not new:
                raise _not_found()
            handle = name.removeprefix(_HANDLE) if name.startswith(_HANDLE) else ""
            ours = thread_in(name)
            found = self._add(ours or mint(), principal, "" if ours else handle)
            self._names[name] = found
        else:
            _check_owner(name, found, principal)
        found.names.add(name)
        found.used = self._clock()
        assert found.key is not None
        self._all.move_to_end(found.key)
        return found

    def nested(self, key: str, principal: Principal, thread: str = "") -> Conversation:
        """A conversation for one run that another run asks for, with its ``thread`` if it has one already.

        It is not kept in memory.
        """
        found = Conversation(key, principal, self._clock)
        found.is_nested = True
        if thread:
            found.is_thread(thread)
        return found

    def bind(self, name: str, thread: str, handle: str, owner: Principal) -> Conversation:
        """Make the name lead to a thread of the ledger; returns its conversation."""
        found = self._all.get(thread)
        if found is None:
            found = self._add(thread, owner, handle)
            found.is_thread(thread)
        self._names[name] = found
        found.names.add(name)
        return found

    def replace(self, old: Conversation, thread: str, handle: str, owner: Principal) -> None:
        """Make all names of a conversation lead to another thread, which its handle turned out to mean."""
        names = set(old.names)
        if old.key is not None and self._all.get(old.key) is old:
            self._drop(old.key)
        found = self._all.get(thread)
        for name in names:
            found = self.bind(name, thread, handle, owner)
        old.successor = found

    def thread_of(self, name: str) -> str | None:
        """The thread of an open session whose conversation is no longer, or not yet, in memory."""
        return self._sessions.get(name) or thread_in(name)

    def find(self, name: str, principal: Principal) -> Conversation:
        """The conversation of that name. Raises Fault ("not found") if there is none or it is another
        principal's.
        """
        found = self._living(name)
        if found is None:
            raise _not_found()
        _check_owner(name, found, principal)
        found.used = self._clock()
        return found

    def peek(self, name: str) -> Conversation | None:
        """The conversation of that name, of any principal. Does not count as use."""
        return self._names.get(name)

    def adopt(self, conversation: Conversation) -> str:
        """Keep a throw-away conversation; returns the handle made for it."""
        handle = conversation.key = mint()
        self._put(handle, conversation)
        conversation.names.add(f"{_HANDLE}{handle}")
        return handle

    def close(self, name: str, principal: Principal) -> None:
        """End a session: forget its conversation unless a run is in it or it has another name."""
        found = self._names.get(name)
        if found is None:
            self._sessions.pop(name, None)
            return
        if not may_continue(found.principal.id, principal, secret=True):
            return
        del self._names[name]
        found.names.discard(name)
        if not found.names and not found.busy and found.key is not None:
            self._drop(found.key)

    def sweep(self) -> None:
        """Forget all conversations that were not used for too long."""
        for key in [key for key, each in self._all.items() if self._idle(each)]:
            self._drop(key)

    def store(
        self, conversation: Conversation, before: tuple[Message, ...], new: tuple[Message, ...]
    ) -> None:
        """Set the messages of a conversation to ``before`` and ``new``; a throw-away one stores nothing."""
        if conversation.key is None:
            return
        conversation.loaded = True
        old = conversation.size
        grows = before is conversation.messages
        size_before = old if grows else sum(message.size for message in before)
        tokens = conversation.tokens if grows else sum(map(tokens_of, before))
        conversation.tokens = tokens + sum(map(tokens_of, new))
        conversation.messages = (*before, *new)
        conversation.size = size_before + sum(message.size for message in new)
        if self._all.get(conversation.key) is conversation:
            self.size += conversation.size - old
            self._forget()

    def drop(self, thread: str) -> None:
        """Forget the conversation of a durable thread that was deleted."""
        if thread in self._all:
            self._drop(thread)
        for session in [name for name, key in self._sessions.items() if key == thread]:
            del self._sessions[session]

    def close_all(self) -> None:
        """Their agent is gone."""
        self._memory.leave(self)

    def oldest_idle(self) -> Conversation | None:
        """The one that was not used for the longest time and that no run is in; looks at a few only."""
        for _ in range(min(_LOOKED_AT, len(self._all))):
            key, oldest = next(iter(self._all.items()))
            if not oldest.busy:
                return oldest
            self._all.move_to_end(key)
        return None

    def forget_oldest(self) -> None:
        """Forget the one that ``oldest_idle`` returns."""
        oldest = self.oldest_idle()
        if oldest is not None and oldest.key is not None:
            self._drop(oldest.key)

    def _add(self, key: str, principal: Principal, handle: str) -> Conversation:
        conversation = Conversation(key, principal, self._clock, handle=handle)
        self._put(key, conversation)
        with conversation.held():
            self._forget()
        return conversation

    def _put(self, key: str, conversation: Conversation) -> None:
        self._all[key] = self._names[f"{_HANDLE}{key}"] = conversation

    def _living(self, name: str) -> Conversation | None:
        found = self._names.get(name)
        if found is not None and found.key is not None and self._idle(found):
            self._drop(found.key)
            return None
        return found

    def _idle(self, conversation: Conversation) -> bool:
        return not conversation.busy and self._clock() - conversation.used >= IDLE_SECONDS

    def _drop(self, key: str) -> None:
        gone = self._all.pop(key)
        self.size -= gone.size
        for name in (*gone.names, f"{_HANDLE}{key}"):
            if self._names.get(name) is gone:
                del self._names[name]
            if gone.thread and name.startswith(_SESSION):
                self._sessions[name] = gone.thread
                while len(self._sessions) > self._max_idle:
                    self._sessions.popitem(last=False)
        self._forgotten(key)

    def _forget(self) -> None:
        """Make room. Checks only a few, so that a new conversation never waits for the old ones."""
        for _ in range(_LOOKED_AT):
            if len(self._all) <= self._max_idle:
                break
            self.forget_oldest()
        self._memory.make_room()


@contextmanager
def _in_time(seconds: float | None) -> Iterator[float]:
    """The seconds to wait at most. Raises Fault (TIMEOUT) for a wait that took longer."""
    try:
        yield QUEUE_TIMEOUT if seconds is None else min(QUEUE_TIMEOUT, seconds)
    except TimeoutError:
        raise Fault(
            FaultType.TIMEOUT, "earlier messages of this conversation did not finish in time"
        ) from None


def _not_found() -> Fault:
    return not_found(GONE)


def _check_owner(key: str, found: Conversation, principal: Principal) -> None:
    """Raise Fault ("not found") if the principal may not continue the conversation of that key."""
    session, handle = key.startswith("session:"), key.removeprefix("id:")
    if not may_continue(found.principal.id, principal, secret=session or is_secret(handle)):
        raise not_theirs(handle, session=session)


def not_theirs(handle: str, *, session: bool = False) -> Fault:
    """The Fault for a caller who may not continue a conversation.

    If its handle can be guessed, the text is the one for a conversation that does not exist.
    """
    if session:
        return other_identity("session")
    return other_identity("conversation") if is_secret(handle) else _not_found()


GONE: Final = (
    "conversation not found: it is unknown, expired, or belongs to another caller; "
    "say 'new' as conversation_id, choose one of your own, or leave it out"
)


def thread_in(name: str) -> str:
    """The id of the thread that a name says; empty for a caller's own handle.

    A session that several processes know is named by its thread.
    """
    said = name.removeprefix(_HANDLE if name.startswith(_HANDLE) else _SESSION)
    return said if minted(said) else ""


def key_of(handle: str | None, session: str | None) -> str | None:
    """The name of a conversation: the caller's handle, else its MCP session, else None.

    Handles and sessions have separate name spaces. Raises Fault (PROTOCOL) for an invalid handle.
    """
    if handle is None:
        return f"{_SESSION}{session}" if session else None
    if not handle or len(handle) > MAX_HANDLE or not handle.isprintable():
        raise Fault(
            FaultType.PROTOCOL,
            f"conversation_id has 1 to {MAX_HANDLE} printable characters; "
            "use one that cannot be guessed, for example a UUID",
        )
    return f"{_HANDLE}{handle}"
