"""Conversations in memory: whose they are, what was said, and one run at a time in each."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final

from pallas.identity import is_secret, may_continue, other_identity
from pallas.identity import minted as minted
from pallas.model import Fault, FaultType, Message, Principal
from pallas.refusals import not_found
from pallas.tokens import tokens_of

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


class Conversation:
    """What one principal and one agent said to each other, oldest first.

    ``key`` is its name inside this process, None for a throw-away one; executors that keep an instance
    for each conversation know it by that. ``thread`` is the durable thread that it is, empty while there is
    none; ``loaded`` says that what was said in it is known here, ``next`` which place its next row gets, None
    where that is not known; ``tokens`` is an estimate. One that is not ``durable`` gets no thread.
    """

    def __init__(self, key: str | None, principal: Principal, clock: Callable[[], float] = monotonic) -> None:
        self.key = key
        self.principal = principal
        self.messages: tuple[Message, ...] = ()
        self.size = 0
        self.tokens = 0
        self.used = clock()
        self.queued = 0
        self.thread = ""
        self.loaded = True
        self.next: int | None = None
        self.durable = True
        self._clock = clock
        self._turn = asyncio.Lock()

    def is_thread(self, thread: str) -> None:
        """It is that durable thread, of which nothing is known here yet."""
        self.thread, self.loaded = thread, False

    @property
    def busy(self) -> bool:
        """A run is in it or waits for it."""
        return self._turn.locked() or self.queued > 0

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
    """The conversations of one agent, by key; the longest unused are forgotten first.

    ``forgotten`` hears the key of each that is. ``clock`` gives seconds.
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

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: str) -> bool:
        return self._living(key) is not None

    def open(self, key: str | None, principal: Principal, *, new: bool = True) -> Conversation:
        """The conversation of that key, made when there is none and it may be ``new``; throw-away for None.

        Raises Fault (UPSTREAM, "not found") when there is none, or when the principal may not continue it.
        """
        if key is None:
            return Conversation(None, principal, self._clock)
        found = self._living(key)
        if found is None:
            if not new:
                raise _not_found()
            found = self._all[key] = Conversation(key, principal, self._clock)
            self._forget()
        else:
            _check_owner(key, found, principal)
        found.used = self._clock()
        self._all.move_to_end(key)
        return found

    def find(self, key: str, principal: Principal) -> Conversation:
        """The conversation of that key. Raises Fault ("not found"): none, or another principal's."""
        found = self._living(key)
        if found is None:
            raise _not_found()
        _check_owner(key, found, principal)
        found.used = self._clock()
        return found

    def peek(self, key: str) -> Conversation | None:
        """The conversation of that key, whoever's it is; looking is no use of it."""
        return self._all.get(key)

    def adopt(self, conversation: Conversation) -> str:
        """Keep a throw-away conversation after all; returns the handle made for it."""
        handle = mint()
        key = conversation.key = f"id:{handle}"
        self._all[key] = conversation
        return handle

    def close(self, key: str, principal: Principal) -> None:
        """Forget one now, unless a run is in it or it is another principal's."""
        found = self._all.get(key)
        if found is not None and not found.busy and may_continue(found.principal.id, principal, secret=True):
            self._drop(key)

    def sweep(self) -> None:
        """Forget all that nobody used for too long."""
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
        for key in [key for key, each in self._all.items() if each.thread == thread]:
            self._drop(key)

    def _living(self, key: str) -> Conversation | None:
        found = self._all.get(key)
        if found is not None and self._idle(found):
            self._drop(key)
            return None
        return found

    def _idle(self, conversation: Conversation) -> bool:
        return not conversation.busy and self._clock() - conversation.used >= self._idle_seconds

    def _drop(self, key: str) -> None:
        self._size -= self._all.pop(key).size
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


def mint() -> str:
    """A new handle with 144 random bits: nobody guesses it."""
    return f"conv-{secrets.token_urlsafe(18)}"


GONE: Final = (
    "conversation not found: it is unknown, expired, or belongs to another caller; "
    "say 'new' as conversation_id, choose one of your own, or leave it out"
)


def key_of(handle: str | None, session: str | None) -> str | None:
    """The key of a conversation: the caller's handle, else its MCP session, else None (C12).

    The two live apart, so no handle names another's session. Raises Fault (PROTOCOL) on a bad handle.
    """
    if handle is None:
        return f"session:{session}" if session else None
    if not handle or len(handle) > MAX_HANDLE or not handle.isprintable():
        raise Fault(
            FaultType.PROTOCOL,
            f"conversation_id has 1 to {MAX_HANDLE} printable characters; "
            "use one that cannot be guessed, for example a UUID",
        )
    return f"id:{handle}"
