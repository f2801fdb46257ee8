"""Conversations in memory: whose they are, what was said, and one run at a time in each."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic
from typing import Any, Final

from pallas.access.identity import is_secret, may_continue, other_identity
from pallas.access.identity import minted as minted
from pallas.model import Fault, FaultType, Message, Principal
from pallas.model.ids import mint
from pallas.model.refusals import not_found
from pallas.model.token_estimate import tokens_of

# Conversations an agent keeps, by number and by characters of text and pictures; runs that may wait in
# one, and how long a run waits for its turn.
KEEP: Final = 10_000
KEEP_SIZE: Final = 256 * 1024 * 1024
QUEUE: Final = 100
QUEUE_TIMEOUT: Final = 1800.0
# A conversation nobody used for a day is forgotten.
IDLE_SECONDS: Final = 24 * 3600.0
MAX_HANDLE: Final = 200
# How many old ones are looked at when a new one comes: enough to shrink, never a pause.
_LOOKED_AT: Final = 8
_HANDLE: Final = "id:"
_SESSION: Final = "session:"


class Conversation:
    """What one principal and one agent said to each other, oldest first.

    ``key`` is the id of its thread, None for a throw-away one: its lock, its instance and its budget are kept
    by that, however the thread was named. ``handle`` is the caller's own name for it, empty without one.
    ``thread`` is its id once the thread is in the ledger; ``loaded`` says that what was said in it is known
    here, ``next`` which place its next row gets, None where that is not known; ``tokens`` is an estimate. One
    that is not ``durable`` gets no thread in the ledger. ``names`` are those it was asked for by.
    ``successor`` is the one to use in its place: the thread of its handle turned out to be another.
    """

    def __init__(
        self,
        key: str | None,
        principal: Principal,
        clock: Callable[[], float] = monotonic,
        *,
        handle: str = "",
    ) -> None:
        self.key = key
        self.handle = handle
        self.principal = principal
        self.names: set[str] = set()
        self.messages: tuple[Message, ...] = ()
        self.size = 0
        self.tokens = 0
        self.used = clock()
        self.queued = 0
        self.thread = ""
        self.loaded = True
        self.next: int | None = None
        self.durable = True
        self.successor: Conversation | None = None
        self._clock = clock
        self._held = 0
        self._turn = asyncio.Lock()

    def is_thread(self, thread: str) -> None:
        """It is that durable thread, of which nothing is known here yet."""
        self.thread, self.loaded = thread, False

    @property
    def busy(self) -> bool:
        """A run is in it or waits for it, or is about to."""
        return self._turn.locked() or self.queued > 0 or self._held > 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """It is busy in this block: it stays in memory, so no other lock is made for the same thread."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def hold(self, task: asyncio.Task[Any]) -> None:
        """It is busy until that task is done."""
        self._held += 1

        def release(_: object) -> None:
            self._held -= 1

        task.add_done_callback(release)

    @asynccontextmanager
    async def turn(self, seconds: float | None = None) -> AsyncIterator[None]:
        """The right to run in this conversation, in order of asking, within ``seconds`` where they are given.

        Raises Fault: TRANSPORT when too many wait already, TIMEOUT when the turn does not come.
        """
        if self.queued >= QUEUE:
            raise Fault(
                FaultType.TRANSPORT,
                f"{QUEUE} messages wait in this conversation already; wait for answers, then send again",
            )
        self.queued += 1
        try:
            async with asyncio.timeout(QUEUE_TIMEOUT if seconds is None else min(QUEUE_TIMEOUT, seconds)):
                await self._turn.acquire()
        except TimeoutError:
            raise Fault(
                FaultType.TIMEOUT, "earlier messages of this conversation did not finish in time"
            ) from None
        finally:
            self.queued -= 1
        try:
            yield
        finally:
            self.used = self._clock()
            self._turn.release()


class Conversations:
    """The conversations of one agent, each under the id of its thread and under all other names it has.

    A name is what ``key_of`` returns. The longest unused are forgotten first; ``forgotten`` hears the key of
    each that is. ``clock`` gives seconds.
    """

    def __init__(
        self,
        keep: int = KEEP,
        idle_seconds: float = IDLE_SECONDS,
        keep_size: int = KEEP_SIZE,
        *,
        clock: Callable[[], float] = monotonic,
        forgotten: Callable[[str], None] = lambda key: None,
    ) -> None:
        self._clock = clock
        self._forgotten = forgotten
        self._keep = keep
        self._keep_size = keep_size
        self._size = 0
        self._idle_seconds = idle_seconds
        self._all: OrderedDict[str, Conversation] = OrderedDict()
        self._names: dict[str, Conversation] = {}
        # Threads of open sessions that are no longer in memory.
        self._sessions: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, name: str) -> bool:
        return self._living(name) is not None

    def open(self, name: str | None, principal: Principal, *, new: bool = True) -> Conversation:
        """The conversation of that name, made when there is none and it may be ``new``; throw-away for None.

        Raises Fault (UPSTREAM, "not found") when there is none, or when the principal may not continue it.
        """
        if name is None:
            return Conversation(None, principal, self._clock)
        found = self._living(name)
        if found is None:
            if not new:
                raise _not_found()
            handle = name.removeprefix(_HANDLE) if name.startswith(_HANDLE) else ""
            ours = minted(handle)
            found = self._add(handle if ours else mint(), principal, "" if ours else handle)
            self._names[name] = found
        else:
            _check_owner(name, found, principal)
        found.names.add(name)
        found.used = self._clock()
        assert found.key is not None
        self._all.move_to_end(found.key)
        return found

    def bind(self, name: str, thread: str, handle: str, owner: Principal) -> Conversation:
        """From now on that name is one of a thread of the ledger; its conversation."""
        found = self._all.get(thread)
        if found is None:
            found = self._add(thread, owner, handle)
            found.is_thread(thread)
        self._names[name] = found
        found.names.add(name)
        return found

    def replace(self, old: Conversation, thread: str, handle: str, owner: Principal) -> None:
        """The thread of a conversation turned out to be another: its names lead there from now on."""
        names = set(old.names)
        if old.key is not None and self._all.get(old.key) is old:
            self._drop(old.key)
        found = self._all.get(thread)
        for name in names:
            found = self.bind(name, thread, handle, owner)
        old.successor = found

    def thread_of(self, name: str) -> str | None:
        """The thread of a session that goes on, where its conversation is no longer in memory."""
        return self._sessions.get(name)

    def find(self, name: str, principal: Principal) -> Conversation:
        """The conversation of that name. Raises Fault ("not found"): none, or another principal's."""
        found = self._living(name)
        if found is None:
            raise _not_found()
        _check_owner(name, found, principal)
        found.used = self._clock()
        return found

    def peek(self, name: str) -> Conversation | None:
        """The conversation of that name, of any principal; looking is no use of it."""
        return self._names.get(name)

    def adopt(self, conversation: Conversation) -> str:
        """Keep a throw-away conversation after all; returns the handle made for it."""
        handle = conversation.key = mint()
        self._put(handle, conversation)
        conversation.names.add(f"{_HANDLE}{handle}")
        return handle

    def close(self, name: str, principal: Principal) -> None:
        """A session is over: its conversation is forgotten unless a run is in it or it has another name."""
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
        """Forget all that were not used for too long."""
        for key in [key for key, each in self._all.items() if self._idle(each)]:
            self._drop(key)

    def store(
        self, conversation: Conversation, before: tuple[Message, ...], new: tuple[Message, ...]
    ) -> None:
        """Make ``before`` and ``new`` all that was said in a conversation; a throw-away one keeps nothing."""
        if conversation.key is None:
            return
        conversation.loaded = True
        old = conversation.size
        grows = before is conversation.messages
        kept = old if grows else sum(message.size for message in before)
        tokens = conversation.tokens if grows else sum(map(tokens_of, before))
        conversation.tokens = tokens + sum(map(tokens_of, new))
        conversation.messages = (*before, *new)
        conversation.size = kept + sum(message.size for message in new)
        if self._all.get(conversation.key) is conversation:
            self._size += conversation.size - old
            self._forget()

    def drop(self, thread: str) -> None:
        """Forget the conversation of a durable thread that is deleted."""
        if thread in self._all:
            self._drop(thread)
        for session in [name for name, key in self._sessions.items() if key == thread]:
            del self._sessions[session]

    def _add(self, key: str, principal: Principal, handle: str) -> Conversation:
        made = Conversation(key, principal, self._clock, handle=handle)
        self._put(key, made)
        with made.held():
            self._forget()
        return made

    def _put(self, key: str, conversation: Conversation) -> None:
        self._all[key] = self._names[f"{_HANDLE}{key}"] = conversation

    def _living(self, name: str) -> Conversation | None:
        found = self._names.get(name)
        if found is not None and found.key is not None and self._idle(found):
            self._drop(found.key)
            return None
        return found

    def _idle(self, conversation: Conversation) -> bool:
        return not conversation.busy and self._clock() - conversation.used >= self._idle_seconds

    def _drop(self, key: str) -> None:
        gone = self._all.pop(key)
        self._size -= gone.size
        for name in (*gone.names, f"{_HANDLE}{key}"):
            if self._names.get(name) is gone:
                del self._names[name]
            if gone.thread and name.startswith(_SESSION):
                self._sessions[name] = gone.thread
                while len(self._sessions) > self._keep:
                    self._sessions.popitem(last=False)
        self._forgotten(key)

    def _forget(self) -> None:
        """Make room: few are looked at, so that a new conversation never waits for the old ones."""
        for _ in range(_LOOKED_AT):
            if len(self._all) <= self._keep and self._size <= self._keep_size:
                return
            key, oldest = next(iter(self._all.items()))
            if oldest.busy:
                self._all.move_to_end(key)
            else:
                self._drop(key)


def _not_found() -> Fault:
    return not_found(GONE)


def _check_owner(key: str, found: Conversation, principal: Principal) -> None:
    """Raises Fault ("not found") where the principal may not continue the conversation of that key."""
    session, handle = key.startswith("session:"), key.removeprefix("id:")
    if not may_continue(found.principal.id, principal, secret=session or is_secret(handle)):
        raise not_theirs(handle, session=session)


def not_theirs(handle: str, *, session: bool = False) -> Fault:
    """The Fault for a caller who may not continue a conversation.

    Where its handle can be guessed the words are those for one that does not exist.
    """
    if session:
        return other_identity("session")
    return other_identity("conversation") if is_secret(handle) else _not_found()


GONE: Final = (
    "conversation not found: it is unknown, expired, or belongs to another caller; "
    "say 'new' as conversation_id, choose one of your own, or leave it out"
)


def key_of(handle: str | None, session: str | None) -> str | None:
    """The name of a conversation: the caller's handle, else its MCP session, else None (C12).

    The two live apart, so no handle names another's session. Raises Fault (PROTOCOL) on a bad handle.
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
