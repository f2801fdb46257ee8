"""The executor of agents in plain Python."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pallas.config import AgentConfig, Project
from pallas.config.files import shown
from pallas.config.project_imports import find_imports, sought
from pallas.config.unnamed_models import refuse_unnamed_model
from pallas.executors.fastagent.import_thread import run_in_import_thread
from pallas.executors.fastagent.read_files import Reads, noting
from pallas.handlers import PromptRequest, Session
from pallas.model import Fault, FaultType, Message, TextDelta

from ..base import Emit, Executor, ExecutorInfo, ExecutorTurn, TurnResult
from .handler_answers import Drafting, HandlerAnswer, answer_of
from .handler_faults import raised
from .handler_loader import load, place_of
from .handler_shape import HandlerMethods, shape_of
from .handler_tasks import HandlerTasks

HOOK_SECONDS: Final = 10.0
"""Seconds for a handler's ``on_session_create``, ``on_session_close`` and ``cancel``."""
# The limit of sessions whose metadata is kept; fleets have fewer (``sessions: max``).
_MAX_SESSIONS: Final = 10_000
# Open sessions by their ids: they outlive the version of an agent that they were opened with.
_open: Final[OrderedDict[str, Session]] = OrderedDict()


class HandlerExecutor(Executor):
    """Runs turns on one handler, each in a task of its own. Belongs to one event loop.

    ``handler`` is the object that answers; without it, it is the one that was registered with ``config``,
    else the one that its ``module:attribute`` names. A handler that does not end when it is cancelled is
    left running and its output is ignored: no caller waits for it.
    """

    def __init__(self, project: Project, config: AgentConfig, handler: Any = None) -> None:
        self._project = project
        self._config = config
        own = config.handler
        registered = own.registered.handler if own is not None and own.registered is not None else None
        self._given = handler if handler is not None else registered
        self._path = own.path if own is not None else ""
        self._capacity = own.capacity if own is not None else 64
        self._info = ExecutorInfo(capacity=self._capacity)
        self._shape: HandlerMethods | None = None
        self._room = asyncio.Semaphore(self._capacity)
        self._waiting = 0
        self._work = HandlerTasks(config.name)
        self._started = False

    @property
    def info(self) -> ExecutorInfo:
        """The handler's own description, known once ``load`` has run."""
        return self._info

    @property
    def waiting(self) -> int:
        """The number of runs that wait because ``capacity`` runs are in progress."""
        return self._waiting

    async def load(self, *, fresh: bool = False) -> None:
        """Import the handler's code unless the handler was given. Raises Fault (CONFIG) with file and
        line."""
        if self._shape is not None:
            return
        if self._given is not None:
            self._learn(shape_of(self._given, self._config.name))
            return
        reads, root, module = Reads(self._project), self._project.root, self._path.partition(":")[0]
        reads.add(*(await asyncio.to_thread(find_imports, root, module)).files)
        try:
            with noting(reads):
                found = await run_in_import_thread(
                    lambda: load(self._project, self._config, self._path, fresh=fresh),
                    f"import {self._config.name}",
                    root,
                )
        except Fault as fault:
            if isinstance(fault.__cause__, ImportError):
                reads.add(*sought(root, fault.__cause__))
            raise
        finally:
            reads.finish()
            self._info = replace(self._info, files=self._files(reads))
        await asyncio.to_thread(refuse_unnamed_model, self._project, self._config)
        try:
            self._learn(shape_of(found, f"{self._path} of {self._config.name}"))
        except Fault as fault:
            place = place_of(self._project, found)
            if place:
                raise Fault(fault.type, f"{place}: {fault.message}", data={"place": place}) from None
            raise

    async def start(self) -> None:
        """Accept runs. Raises as ``load`` does if that has not run yet."""
        await self.load()
        self._started = True

    async def run(self, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        """Answer one turn. Raises Fault: an exception of the handler is reported by its kind, its text
        stays in the log."""
        if self._shape is None or not self._started:
            raise Fault(FaultType.TRANSPORT, f"{self._config.name} is not running")
        if self._room.locked():
            self._waiting += 1
            try:
                await self._room.acquire()
            finally:
                self._waiting -= 1
        else:
            await self._room.acquire()
        try:
            return await self._answered(self._shape, turn, emit)
        finally:
            self._room.release()

    async def park(self, timeout_s: float) -> None:
        """Cancel runs in flight; the handler is kept for another ``start``."""
        self._started = False
        await self._work.end(timeout_s)

    async def close(self, timeout_s: float) -> None:
        """Cancel runs in flight, and wait for them at most ``timeout_s`` seconds."""
        self._started = False
        await self._work.end(timeout_s)

    # Sessions (``SessionHooks``)

    async def session_opened(self, session: str, metadata: Mapping[str, Any]) -> None:
        """Call ``on_session_create``. Raises Fault (UPSTREAM, TIMEOUT): then there is no session (DR-27)."""
        opened = Session(session, self._config.name, MappingProxyType(dict(metadata)))
        if self._shape is not None and self._shape.created is not None:
            await self._hook("on_session_create", self._shape.created(opened))
        _open[session] = opened
        while len(_open) > _MAX_SESSIONS:
            _open.popitem(last=False)

    async def session_closed(self, session: str, reason: str) -> None:
        """Call ``on_session_close``. Raises Fault as ``session_opened``; the session is forgotten all the
        same."""
        known = _open.pop(session, None) or Session(session, self._config.name)
        if self._shape is not None and self._shape.closed is not None:
            await self._hook("on_session_close", self._shape.closed(known, reason))

    async def session_cancelled(self, session: str) -> None:
        """Call ``cancel``, after the run itself was cancelled. Raises Fault as ``session_opened``."""
        known = _open.get(session) or Session(session, self._config.name)
        if self._shape is not None and self._shape.cancel is not None:
            await self._hook("cancel", self._shape.cancel(known))

    # How it is done

    def _learn(self, shape: HandlerMethods) -> None:
        self._shape = shape
        self._info = replace(
            self._info,
            vision=shape.vision,
            defined=place_of(self._project, shape.handler),
            capabilities=self._config.capabilities or shape.capabilities,
            providers=(),
            names_models=True,
        )

    def _files(self, reads: Reads) -> tuple[str, ...]:
        return tuple(sorted(shown(self._project.root, Path(path)) for path in reads.files))

    async def _answered(self, shape: HandlerMethods, turn: ExecutorTurn, emit: Emit) -> TurnResult:
        drafting = Drafting(lambda text: emit(TextDelta(run_id=turn.run_id, agent=turn.agent, text=text)))
        task = self._work.own(answer_of(shape, self._request(turn), drafting), f"{turn.agent}: {turn.run_id}")
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            await self._work.leave(task, f"run {turn.run_id}")
            raise
        finally:
            drafting.end()
        answer = self._result_of(task, turn)
        messages = Message("user", turn.text, turn.images), Message("assistant", answer.text)
        return TurnResult((answer.text,), messages, answer.usage, answer.stop_reason)

    def _result_of(self, task: asyncio.Task[HandlerAnswer], turn: ExecutorTurn) -> HandlerAnswer:
        if task.cancelled():  # not by us: our own cancellation does not come here
            raise Fault(
                FaultType.UPSTREAM, f"{self._config.name} cancelled its own work; nothing was answered"
            )
        error = task.exception()
        if error is None:
            return task.result()
        raise raised(self._config.name, error, self._project.root) from None

    def _request(self, turn: ExecutorTurn) -> PromptRequest:
        session = None
        if turn.session:
            session = _open.get(turn.session) or Session(turn.session, self._config.name)
        return PromptRequest(
            text=turn.text,
            images=turn.images,
            # Most have none: then keep the handler's own text.
            history=tuple(
                each if each.native is None else replace(each, native=None) for each in turn.history
            ),
            session=session,
            thread=turn.lease or "",
            principal=turn.principal,
            params=MappingProxyType(turn.params.to_json()),
            run_id=turn.run_id,
            agent=turn.agent,
            metadata=session.metadata if session is not None else MappingProxyType({}),
            stream=turn.stream_text,
        )

    async def _hook(self, what: str, work: Awaitable[Any]) -> None:
        """Run ``work`` within ``HOOK_SECONDS``. Raises Fault."""
        task = self._work.own(work, f"{self._config.name}: {what}")
        try:
            await asyncio.wait({task}, timeout=HOOK_SECONDS)
        except asyncio.CancelledError:
            await self._work.leave(task, what)
            raise
        if not task.done():
            await self._work.leave(task, what)
            text = f"{what} of {self._config.name} took longer than {HOOK_SECONDS:g} s"
            raise Fault(FaultType.TIMEOUT, text)
        if task.cancelled():
            raise Fault(FaultType.UPSTREAM, f"{what} of {self._config.name} cancelled itself")
        if (error := task.exception()) is not None:
            raise raised(self._config.name, error, self._project.root, what) from None
