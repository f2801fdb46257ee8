"""The executor of an agent at another MCP endpoint: another Pallas, a fast-agent, any chat-like tool."""

import asyncio
import importlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httpx2

from pallas.access.bearer_lease import BearerLease, lending
from pallas.access.sent_credential import configured_credential
from pallas.config import AgentConfig, Project
from pallas.config.kinds import RemoteConfig
from pallas.config.models import DownstreamConfig
from pallas.health.probe.server_probe import unprobed
from pallas.model import Fault, FaultType, Message, Notice
from pallas.model.fingerprint import fingerprint
from pallas.safe_text import sanitize
from pallas.telemetry.step_record import call_step

from ..base import Emit, Executor, ExecutorInfo, ExecutorTurn, TurnResult
from ..metered_work import limits_left, metered_work
from .call_method import CallMethod
from .endpoint_watch import PACE, EndpointWatch, WatchIntervals
from .remote_answer import RemoteAnswer, answer_of, words_of
from .remote_connection import ConnectionKey, RemoteConnection
from .remote_credentials import Noted, noting
from .remote_endpoint import OtherSide
from .remote_faults import Forgotten, Whom, explain, goes_on, is_forgotten, reported
from .remote_progress import Progress
from .run_there import CancelsThere, RunThere
from .turn_arguments import NEW, call_arguments

KEEP: Final = 10_000
MAX_HANDLE: Final = 500

log = logging.getLogger(__name__)

# The other side may lose a conversation, and the connection too: then it is sent once more, and no more.
_ATTEMPTS: Final = 3
_MAX_INSTRUCTION: Final = 4_000


class _Known(NamedTuple):
    handle: str
    messages: int


class Handles:
    """Handles by lease; the longest unused are forgotten first. A handle opens a conversation: never
    show it."""

    def __init__(self, limit: int = KEEP) -> None:
        self._limit = limit
        self._all: OrderedDict[str, _Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._all)

    def of(self, lease: str | None, history: Sequence[Message]) -> str:
        """Return the handle under which the other side knows exactly this history; empty if there is none.

        A history that was edited or shortened has to be sent again.
        """
        known = self._all.get(lease) if lease is not None else None
        if lease is None or known is None:
            return ""
        if known.messages != len(history):
            del self._all[lease]
            return ""
        self._all.move_to_end(lease)
        return known.handle

    def store(self, lease: str | None, handle: str, messages: int) -> None:
        """Record that the other side knows this number of messages under that handle."""
        if lease is None or not handle or len(handle) > MAX_HANDLE:
            return
        self._all[lease] = _Known(handle, messages)
        self._all.move_to_end(lease)
        while len(self._all) > self._limit:
            self._all.popitem(last=False)

    def forget(self, lease: str | None) -> None:
        """Forget a conversation that is over, or whose state on the other side is unknown."""
        if lease is not None:
            self._all.pop(lease, None)

    def clear(self) -> None:
        """Forget all: the other side may have been restarted."""
        self._all.clear()


class RemoteExecutor(Executor):
    """Runs turns at the MCP endpoint at ``config.remote.url``, in either era of the protocol.

    Detects at the start how to call it. Conversations continue there in the way it supports; if it supports
    none, or lost one, the history is sent again. ``pace`` is how often it is checked.
    """

    def __init__(self, project: Project, config: AgentConfig, *, pace: WatchIntervals = PACE) -> None:
        remote = config.remote or RemoteConfig("")
        self._config = config
        self._remote = remote
        self._name = config.name
        self._pace = pace
        self._downstream = DownstreamConfig(
            config.name,
            "http",
            url=remote.url,
            headers=remote.headers,
            forward_inbound_auth=remote.forward_inbound_auth,
        )
        self._whom = Whom(
            config.name, unprobed(self._downstream).target, remote.forward_inbound_auth, pace.connect
        )
        self._forwards = remote.forward_inbound_auth and not configured_credential(remote.headers)
        self._info = ExecutorInfo(
            capabilities=config.capabilities, capacity=remote.capacity, providers=(), names_models=True
        )
        self._there = OtherSide(config, remote, self._whom)
        self._handles = Handles()
        self._cancels = CancelsThere(self._name)
        self._room = asyncio.Semaphore(max(1, remote.capacity))
        self._waiting = self._active = 0
        self._is_closed = False
        self._left_out: set[str] = set()
        self._tell_failed: Callable[[str], None] | None = None
        self._watch = EndpointWatch(
            self._downstream, pace=pace, busy=self._busy, gone=self._gone, tidy=self._there.pool.sweep
        )

    @property
    def info(self) -> ExecutorInfo:
        """The configuration, and once it was reached, its capabilities."""
        return self._info

    def problems(self) -> tuple[str, ...]:
        """The agent's own name while the last check failed."""
        return () if self._watch.well else (self._name,)

    @property
    def waiting(self) -> int:
        """The number of runs beyond its capacity."""
        return self._waiting

    def when_failed(self, tell: Callable[[str], None]) -> None:
        """Call ``tell`` when the other side no longer answers."""
        self._tell_failed = tell

    async def load(self, *, fresh: bool = False) -> None:
        """Import the client, and validate the configuration. Raises Fault (CONFIG)."""
        where = f"{self._config.where}: {self._name}"
        if self._remote.unset:
            names = ", ".join(self._remote.unset)
            raise Fault(FaultType.CONFIG, f"{where}: headers need {names}, which is not set; set it in .env")
        try:
            parts = urlsplit(self._remote.url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
            httpx2.URL(self._remote.url)
        except (ValueError, httpx2.InvalidURL):
            good = False
        if not good:
            raise Fault(FaultType.CONFIG, f"{where}: url is not one of http or https; correct it")
        await asyncio.to_thread(importlib.import_module, "mcp.client.streamable_http")
        if parts.scheme == "https":  # reads the certificate store
            self._there.verify = await asyncio.to_thread(httpx2.create_ssl_context)

    async def start(self) -> None:
        """Detect the other side, and check it from now on.

        Raises Fault: TRANSPORT, TIMEOUT or UPSTREAM while it is down, AUTH, CONFIG if the call method is
        ambiguous. An endpoint that requires the caller's own token is detected with the first caller that
        has one.
        """
        self._check_open()
        self._there.forget()
        self._handles.clear()
        with noting() as noted:
            try:
                self._learned(await self._there.find("", noted))
            except Fault as fault:
                if not (self._forwards and fault.type is FaultType.AUTH and noted.status == 401):
                    raise
        self._check_open()
        self._watch.start(self._there.verify)

    async def run(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        """Answer one turn there; cancelling it cancels the run there. Raises Fault."""
        there = RunThere.of(turn, forwards=self._forwards)
        async with self._place():
            self._check_open()
            try:
                with call_step("agent", self._name, {"message": turn.text}) as step:
                    async with metered_work(turn) as work:
                        answer = await self._answer(turn, emit, there)
                        work.take(answer.usage, answer.texts)
                    if step is not None:
                        step.content([{"type": "text", "text": each} for each in answer.texts])
            except Fault as fault:
                if fault.type in (FaultType.TRANSPORT, FaultType.TIMEOUT):
                    self._watch.soon()
                raise
            finally:
                self._cancels.begin(there, partial(self._tell, turn, emit))
        messages = Message("user", turn.text, turn.images), Message("assistant", "\n\n".join(answer.texts))
        return TurnResult(
            texts=answer.texts,
            messages=messages,
            usage=answer.usage,
            stop_reason=answer.stop_reason,
            backend=answer.backend,
        )

    def release(self, lease: str) -> None:
        """Forget the handle of a conversation; a session that holds it ends."""
        self._handles.forget(lease)
        self._there.pool.forget(lease)

    async def park(self, timeout_s: float) -> None:
        """Close all connections; ``start`` opens new ones."""
        await self._watch.stop()
        await self._cancels.close(min(timeout_s, 3.0))
        await self._there.pool.close(timeout_s)

    async def close(self, timeout_s: float) -> None:
        """Close all connections, for good."""
        self._tell_failed, self._is_closed = None, True
        await self.park(timeout_s)

    async def _answer(self, turn: ExecutorTurn, emit: Emit, there: RunThere) -> RemoteAnswer:
        """Return the answer; the history is sent again if the other side lost it, and the message if the
        connection to its run broke off. Raises Fault.
        """
        forgotten, has_told = 0, False
        while forgotten < _ATTEMPTS:
            try:
                return await self._attempt(turn, emit, there)
            except Forgotten:
                forgotten += 1
                self._there.gone()
                log.info("%s: %s forgot a conversation; it is sent again", self._name, self._whom.url)
            except Fault as fault:
                if not await there.may_be_asked_again(fault):
                    raise
                if not has_told:
                    text = (
                        f"the connection broke off, and {self._name} is asked again: its run continues there"
                    )
                    log.warning("%s: %s", self._name, text)
                    emit(Notice(level="warning", text=text, agent=self._name))
                has_told = True
        raise Fault(
            FaultType.UPSTREAM,
            f"{self._name}: {self._whom.url} loses each conversation at once; are there several "
            f"servers behind it "
            "that do not share conversations?",
            retryable=True,
            data=self._whom.data,
        )

    async def _tell(self, turn: ExecutorTurn, emit: Emit, meta: dict[str, Any]) -> None:
        """Call the other side with that metadata, and no message. Raises what the connection raises."""
        if (way := self._there.way) is None:
            return
        connection = self._there.pool.take(ConnectionKey(once=True))
        try:
            with lending(_lease_of(turn, emit), connection.slot):
                await connection.open(self._pace.connect)
                await connection.call(way.tool, {way.argument: ""}, meta, _unheard)
        finally:
            self._there.pool.give(connection, reusable=False)

    async def _attempt(self, turn: ExecutorTurn, emit: Emit, there: RunThere) -> RemoteAnswer:
        credential = fingerprint(turn.bearer) if self._forwards and turn.bearer else ""
        with noting() as noted:
            way = self._there.way
            if way is None:
                way = self._learned(await self._there.find(credential, noted, _lease_of(turn, emit)))
            connection = self._there.connection(way, turn, credential)
            is_reusable = False
            try:
                # The connection's own requests also belong to the run that holds it.
                with lending(_lease_of(turn, emit), connection.slot):
                    answer = await self._ask(connection, way, turn, emit, noted, there)
                is_reusable = True
                return answer
            finally:
                if not is_reusable:  # the state of the conversation on the other side is unknown
                    self._handles.forget(turn.lease)
                self._there.pool.give(connection, reusable=is_reusable)

    async def _ask(
        self,
        connection: RemoteConnection,
        way: CallMethod,
        turn: ExecutorTurn,
        emit: Emit,
        noted: Noted,
        there: RunThere,
    ) -> RemoteAnswer:
        handle = self._handles.of(turn.lease, turn.history)
        reused = connection.was_opened
        knows = bool(handle) or (way.memory == "session" and connection.sent_messages > 0)
        given = handle or self._new_handle(way, turn, is_kept=way.keyed and bool(there.key))
        call = call_arguments(way, turn, given, knows=knows, limits=await limits_left())
        self._tell_left_out(way, turn, emit)
        progress = Progress(turn, emit, way.speaker)
        try:
            await connection.open(self._pace.connect)
            meta = {**call.meta, **there.asked(way)}
            result = await connection.call(way.tool, call.arguments, meta, progress.hear)
            there.is_open = False
        except Exception as error:  # any error of the transport becomes one Fault
            try:
                fault = explain(await connection.cause_of(error), noted, self._whom)
            except Forgotten:
                if reused or handle:
                    there.is_open = False
                    raise
                fault = Fault(
                    FaultType.UPSTREAM,
                    f"{self._name}: {self._whom.url} ended the session while it was asked; send it again",
                    retryable=True,
                    data=self._whom.data,
                )
            if fault.type is FaultType.INTERNAL:
                log.warning("%s: asking %s failed", self._name, self._whom.url, exc_info=error)
            if fault.type is FaultType.PROTOCOL:
                self._there.forget()  # it may have changed
            raise fault from None
        finally:
            progress.end()
        if result.is_error:
            words = words_of(result)
            if handle and is_forgotten(words):
                raise Forgotten
            there.is_open = there.joins and goes_on(words)
            raise reported(words, self._whom)
        answer = answer_of(result, way)
        known = len(turn.history) + 2
        self._handles.store(turn.lease, answer.handle or (given if way.memory == "given" else ""), known)
        if way.memory == "session" and connection.auth.session:
            connection.sent_messages = known
        return answer

    def _tell_left_out(self, way: CallMethod, turn: ExecutorTurn, emit: Emit) -> None:
        """Warn once of each run parameter that is left out: only fleets of Pallas support them."""
        given = {key for key, value in turn.params.values.items() if value is not None}
        if not way.params and (left_out := sorted(given - self._left_out)):
            self._left_out |= given
            text = f"{self._name} is {way.what} and takes no parameters: left out {', '.join(left_out)}"
            emit(Notice(level="warning", text=text, agent=self._name))

    def _new_handle(self, way: CallMethod, turn: ExecutorTurn, *, is_kept: bool) -> str:
        """Return the value of the handle argument for a new conversation.

        One that ``is_kept`` has to be there after its answer.
        """
        if way.memory == "minted" and (turn.lease is not None or is_kept):
            return NEW
        if way.memory == "given" and (turn.lease is not None or way.needs_conversation):
            return secrets.token_urlsafe(24)
        return ""

    def _learned(self, way: CallMethod) -> CallMethod:
        about = sanitize(self._there.about, _MAX_INSTRUCTION)
        self._info = replace(self._info, vision=bool(way.images), instruction=about, joins=way.keyed)
        return way

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        self._waiting += 1
        try:
            await self._room.acquire()
        finally:
            self._waiting -= 1
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1
            self._room.release()

    def _check_open(self) -> None:
        # A caller that waited or was about to start when it closed: a new connection would never be closed.
        if self._is_closed:
            raise Fault(FaultType.TRANSPORT, f"{self._name} is stopping", data=self._whom.data)

    def _busy(self) -> bool:
        return self._active > 0

    def _gone(self, reason: str) -> None:
        if self._tell_failed is not None:
            self._tell_failed(reason)


async def _unheard(progress: float, total: float | None, message: str | None) -> None:
    """Take the progress of a call that has none to show."""


def _lease_of(turn: ExecutorTurn, emit: Emit) -> BearerLease:
    return BearerLease(turn.run_id, turn.agent, turn.bearer, emit)
