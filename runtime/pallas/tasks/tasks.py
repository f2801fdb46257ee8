"""The tasks of one fleet: begin, follow, answer, cancel, find again.

A task is written to the ledger before its work begins, and belongs to its caller: for others it is not found,
in the same words as one that does not exist. Its work continues when the caller's connection ends.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from time import monotonic, time
from typing import Any, Final

from pallas.access.grants import Grants
from pallas.access.identity import may_continue
from pallas.config.kinds import TasksConfig
from pallas.model import Fault, FaultType, Page, Principal, TaskChanged, TaskRecord, TaskStatus, refusals
from pallas.model.other_workers import CANCEL_TASK
from pallas.model.refusals import OTHERS, REASON, STOPPED
from pallas.questions.question_form import answer_of
from pallas.runs.kernel import Kernel
from pallas.safe_text import one_line
from pallas.sessions.thread_access import ADMIN
from pallas.telemetry.event_hub import EventHub

from .task_memory import TaskStore
from .task_work import MakeRun, TaskOutcome, TaskWork, is_ended

CANCELLED: Final = Fault(FaultType.UPSTREAM, "the task was cancelled", data={"cancelled": True})

type End = dict[str, Any]
"""The fields of a record that change when a task ends."""

log = logging.getLogger(__name__)

MAX_ANSWERS: Final = 64
"""Answers that are taken at a time."""
KEEP_EVERY: Final = 5.0
"""Seconds between two writes of a task's progress."""
LOOK_EVERY: Final = 2.0
"""Seconds between two looks at a task that another fleet of the same ledger runs."""
_TRIES: Final = (1.0, 5.0, 20.0)
"""Seconds after which a failed write of an end is retried."""


def end_of(work: TaskWork, done: TaskOutcome, *, gone: bool) -> End:
    """The end of a task with that outcome. ``gone``: the fleet stops."""
    if done.fault is None:
        end: End = {"status": "completed", "result": done.result, "text": done.text}
    else:
        end = failed(work, done.fault, gone=gone)
        if "result" in end:
            end["result"] = done.result
    return {**end, **({"thread": done.thread} if done.thread else {})}


def failed(work: TaskWork, fault: Fault, *, gone: bool) -> End:
    """The end of a task with that Fault. It has no result if the fleet stopped before there was one."""
    cut = bool(fault.data.get("cancelled"))
    if cut and not work.cancelled and (work.stopped or gone):
        left = {key: fault.data[key] for key in ("partial", "conversation_id") if key in fault.data}
        text = f"{STOPPED}; what it did until then was done: look at its thread, and ask again"
        lost = Fault(FaultType.UPSTREAM, text, data={"stopped": True, **left})
        return broken(lost)
    body = fault.to_body()
    text = json.dumps(body, ensure_ascii=False)
    result = {"content": [{"type": "text", "text": text}], "isError": True}
    return {"status": "cancelled" if cut else "failed", "fault": body, "result": result}


def broken(fault: Fault) -> End:
    """The end of a task whose work broke: no result, since none was ever returned."""
    return {"status": "failed", "fault": fault.to_body()}


class Tasks:
    """The tasks of a fleet. Belongs to the fleet's event loop.

    ``stopping`` says whether the fleet ends, ``config`` returns the current limits. Every method raises
    Fault: not found, PROTOCOL on a bad limit or cursor, TRANSPORT and TIMEOUT if the database does not
    answer.
    """

    def __init__(
        self,
        store: TaskStore,
        kernel: Kernel,
        hub: EventHub,
        grants: Grants,
        *,
        config: Callable[[], TasksConfig] = TasksConfig,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._kernel = kernel
        self._hub = hub
        self._grants = grants
        self._config = config
        self._stopping = stopping
        self._works: dict[str, TaskWork] = {}
        self._own: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def under_way(self) -> int:
        """The number of tasks under way."""
        return len(self._works)

    async def begin(
        self,
        agent: str,
        principal: Principal,
        run: MakeRun,
        *,
        kind: str = "send_message",
        preview: str = "",
        run_id: str = "",
        answers: bool = False,
    ) -> TaskRecord:
        """Write a task to the ledger, then start its work. With ``answers`` its questions are listed in it.

        Raises Fault (TRANSPORT) if the fleet ends or ``max`` tasks are under way.
        """
        config = self._config()
        if self._closed or self._stopping():
            raise refusals.stopping()
        if len(self._works) >= config.max:
            text = f"Server overloaded: {config.max} tasks are under way; try again when some are over"
            raise Fault(FaultType.TRANSPORT, text, data={"retry_after": 5.0})
        now = time()
        record = TaskRecord(
            id=secrets.token_hex(16),
            agent=agent,
            owner=principal.id,
            status="working",
            created_at=now,
            updated_at=now,
            run_id=run_id,
            kind=kind,
            preview=one_line(preview, 120),
            ttl=config.ttl,
        )
        work = self._works[record.id] = self._work(record, lists_questions=answers)
        work.list_questions()
        try:
            await self._store.begin(work.record)
        except BaseException:
            del self._works[record.id]
            self._spawn(self._forget(record.id))  # it may have been written, but no caller has its id
            raise
        if work.record is record:
            self._tell(record)
        self._launch(work, run)
        return work.record

    def adopt(self, record: TaskRecord, run: MakeRun) -> None:
        """Go on with a task of a fleet that died; ``run`` goes on with its run."""
        # Nothing says whether its client can be asked; most that have a handle can.
        work = self._works[record.id] = self._work(record, lists_questions=True)
        work.list_questions()
        self._launch(work, run)

    def _work(self, record: TaskRecord, *, lists_questions: bool) -> TaskWork:
        return TaskWork(record, self._tell, self._kernel.questions.open_of, lists_questions)

    def _launch(self, work: TaskWork, run: MakeRun) -> None:
        # The work outlives the request that began it, so it must not inherit its context.
        task = asyncio.get_running_loop().create_task(
            self._do(work, run), name=f"task {work.record.id[:8]}", context=Context()
        )
        work.task = task
        self._own.add(task)
        task.add_done_callback(self._own.discard)

    async def find(self, id: str, principal: Principal) -> TaskRecord:  # noqa: A002 - the word of the record
        """The task of that id as it is now."""
        work = self._works.get(id)
        found = work.record if work is not None else await self._store.get(id)
        # Its id has 128 random bits, so it is a handle: another token of the same identity may continue it.
        if found is None or not (
            may_continue(found.owner, principal, secret=True) or self._sees_all(principal)
        ):
            raise _not_found()
        if work is None and found.request:
            return await self._still_asked(found, principal)
        return found

    async def _still_asked(self, task: TaskRecord, principal: Principal) -> TaskRecord:
        """A task of another process without the questions that were answered since it wrote it."""
        still = {}
        for key, asked in (task.request or {}).items():
            with suppress(Fault):
                if (await self._kernel.questions.get(key, principal)).is_open:
                    still[key] = asked
        return replace(task, request=still or None, status="input_required" if still else "working")

    async def list(
        self,
        principal: Principal,
        *,
        agent: str | None = None,
        status: TaskStatus | None = None,
        limit: int = 50,
        cursor: str = "",
    ) -> Page[TaskRecord]:
        """The principal's tasks, or all if it may see them, newest first, without answers."""
        self._grants.require_known(principal)
        owner = None if self._sees_all(principal) else principal.id
        page = await self._store.list(agent=agent, owner=owner, status=status, limit=limit, cursor=cursor)
        return Page(tuple(self._now(each) for each in page.items), page.next)

    async def cancel(self, id: str, principal: Principal) -> TaskRecord:  # noqa: A002 - as above
        """Ask for the task to be cancelled; it ends soon. A task that is over stays as it is.

        One of another fleet that uses the same ledger ends a moment later. Raises Fault (conflict) for one
        without a run there.
        """
        found = await self.find(id, principal)
        if is_ended(found):
            return found
        if id not in self._works and self._kernel.others is not None:
            self._kernel.others.tell(CANCEL_TASK, id)
            return found
        if id not in self._works and not found.run_id:
            raise refusals.conflict("another fleet that shares this database does this task; cancel it there")
        if id not in self._works:
            self._kernel.cancel(found.run_id)
            return found
        self.cancel_here(id)
        return self._works[id].record

    def cancel_here(self, id: str) -> None:  # noqa: A002
        """Cancel a task of this process, as its owner or another process asks."""
        if (work := self._works.get(id)) is None:
            return
        work.cancelled = True
        asked = bool(work.record.run_id) and self._kernel.cancel(work.record.run_id)
        if not asked:
            work.interrupt()

    def cancel_soon(self, id: str, principal: Principal) -> None:  # noqa: A002
        """Cancel a task whose caller has left; returns at once."""

        async def cancel() -> None:
            with suppress(Fault):
                await self.cancel(id, principal)

        self._spawn(cancel())

    async def answer(self, id: str, principal: Principal, given: Mapping[str, Any]) -> frozenset[str]:  # noqa: A002
        """Answer questions of a task with what a client sends for their forms, by the ids of the questions.

        Returns those that are over now. Those of other tasks, and what is no answer, are ignored, and one
        whose content does not fit stays open. Raises Fault (AUTH) for a caller that sees the task and may not
        answer.
        """
        task, questions = await self.find(id, principal), self._kernel.questions
        over = set()
        for key in list(given)[:MAX_ANSWERS]:
            try:
                question = await questions.get(key, principal)
                if task.run_id not in (question.root, question.run_id):
                    continue
                if (answer := answer_of(question, given[key])) is not None:
                    await questions.answer(key, answer, principal)
                    over.add(key)
            except Fault as fault:
                if fault.type is FaultType.AUTH:
                    raise
                if fault.data.get(REASON) in ("conflict", "not_found"):
                    over.add(key)
        if (work := self._works.get(id)) is not None:
            work.list_questions(over)
        return frozenset(over)

    async def follow(self, id: str, principal: Principal) -> AsyncGenerator[TaskRecord]:  # noqa: A002
        """Yield the task as it is, and again after each change, until its end."""
        record = await self.find(id, principal)
        yield record
        while not is_ended(record):
            work = self._works.get(id)
            if work is None:
                await asyncio.sleep(0 if (await self.find(id, principal)) != record else LOOK_EVERY)
            elif work.record == record:
                await work.changes(60.0)
            if (now := await self.find(id, principal)) != record:
                record = now
                yield record

    async def wait(self, id: str, principal: Principal, seconds: float) -> TaskRecord:  # noqa: A002
        """The task once it is over, or as it is after ``seconds``."""
        found = await self.find(id, principal)
        until = monotonic() + seconds
        while not is_ended(found) and (left := until - monotonic()) > 0:
            work = self._works.get(id)
            if work is None:
                await asyncio.sleep(min(left, LOOK_EVERY))
            else:
                await work.changes(left)
            found = await self.find(id, principal)
        return found

    async def close(self, seconds: float = 1.0) -> None:
        """End all tasks because the fleet stops; those under way fail with that reason.

        Safe to call twice.
        """
        self._closed = True
        for work in self._works.values():
            work.stopped = True
            work.interrupt()
        if self._own:
            await asyncio.wait(self._own, timeout=seconds)
        for task in self._own:
            task.cancel()

    async def _do(self, work: TaskWork, run: MakeRun) -> None:
        keeping = asyncio.create_task(self._write_progress(work), name="keep a task")
        work.doing = True
        try:
            if work.cancelled or work.stopped:
                raise asyncio.CancelledError
            end = end_of(work, await run(work.hear), gone=self._stopping())
        except Fault as fault:
            if fault.data.get(REASON) in OTHERS:  # another fleet goes on with it, and with this task
                self._works.pop(work.record.id, None)
                work.change()
                return
            end = failed(work, fault, gone=self._stopping())
        except asyncio.CancelledError:
            end = failed(work, CANCELLED, gone=self._stopping())
        except Exception:
            log.exception("task %s of %s failed", work.record.id[:8], work.record.agent)
            text = "the task failed; the log has the details"
            end = broken(Fault(FaultType.INTERNAL, text))
        finally:
            work.doing = False
            keeping.cancel()
        # Written before it is published, so that a task reported as over is so after a restart too.
        ended = replace(work.record, updated_at=time(), request=None, **end)
        try:
            await self._finish(ended)
        finally:
            self._works.pop(ended.id, None)
            work.change(**end, request=None)

    async def _finish(self, ended: TaskRecord) -> None:
        for pause in (*_TRIES, None):
            try:
                await self._store.finish(ended)
            except Fault as fault:
                if pause is None or self._closed:
                    log.error("task %s: its end was not written down: %s", ended.id[:8], fault.message)
                    return
                await asyncio.sleep(pause)
            else:
                return

    async def _write_progress(self, work: TaskWork) -> None:
        """Write the task's progress at intervals."""
        while True:
            await work.unkept.wait()
            work.unkept.clear()
            with suppress(Fault):
                await self._store.move(work.record)
            await asyncio.sleep(KEEP_EVERY)

    async def _forget(self, id: str) -> None:  # noqa: A002 - the word of the record
        with suppress(Fault):
            await self._store.forget(id)

    def _now(self, task: TaskRecord) -> TaskRecord:
        work = self._works.get(task.id)
        return work.record if work is not None else task

    def _tell(self, task: TaskRecord) -> None:
        fault = (task.fault or {}).get("error", "")
        # The id opens the task for its owner: publish only enough to tell two apart.
        event = TaskChanged(
            agent=task.agent, task=task.id[:8], status=task.status, detail=one_line(str(fault), 200)
        )
        self._hub.publish(event)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._own.add(task)
        task.add_done_callback(self._own.discard)

    def _sees_all(self, principal: Principal) -> bool:
        grants = self._grants
        if not grants.enforced:
            return principal.id == ADMIN
        return grants.allows(principal, "view", "agents") and grants.allows(principal, "admin", "threads")


def _not_found() -> Fault:
    return refusals.not_found(
        "task not found: it is unknown, over for too long, or belongs to another caller"
    )
