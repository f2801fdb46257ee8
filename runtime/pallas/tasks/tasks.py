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
from typing import TYPE_CHECKING, Any, Final

from pallas.access.grants import Grants
from pallas.access.identity import may_continue
from pallas.asking import Answered, asker
from pallas.config.kinds import TasksConfig
from pallas.model import Fault, FaultType, Page, Principal, TaskChanged, TaskRecord, TaskStatus, refusals
from pallas.model.refusals import STOPPED
from pallas.runs.kernel import Kernel
from pallas.safe_text import one_line
from pallas.sessions.thread_access import ADMIN
from pallas.telemetry.event_hub import EventHub

from .task_work import MakeRun, TaskOutcome, TaskWork, is_ended

if TYPE_CHECKING:  # the database is imported by a fleet that has one
    from pallas.ledger import Ledger

CANCELLED: Final = Fault(FaultType.UPSTREAM, "the task was cancelled", data={"cancelled": True})

type End = dict[str, Any]
"""The fields of a record that change when a task ends."""

log = logging.getLogger(__name__)

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
        ledger: "Ledger",
        kernel: Kernel,
        hub: EventHub,
        grants: Grants,
        *,
        config: Callable[[], TasksConfig] = TasksConfig,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._ledger = ledger
        self._store = ledger.tasks
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
        """Write a task to the ledger, then start its work. With ``answers`` the work may ask its owner.

        Raises Fault (TRANSPORT) if the fleet ends or ``max`` tasks are under way.
        """
        config = self._config()
        if self._closed or self._stopping():
            raise Fault(FaultType.TRANSPORT, "the fleet is stopping; try again when it is back")
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
        work = self._works[record.id] = TaskWork(record, self._tell)
        try:
            await self._store.begin(record)
        except BaseException:
            del self._works[record.id]
            self._spawn(self._forget(record.id))  # it may have been written, but no caller has its id
            raise
        self._tell(record)
        # The work outlives the request that began it, so it must not inherit its context.
        context = Context()
        if answers:
            context.run(asker.set, work.ask)
        task = asyncio.get_running_loop().create_task(
            self._do(work, run), name=f"task {record.id[:8]}", context=context
        )
        work.task = task
        self._own.add(task)
        task.add_done_callback(self._own.discard)
        return record

    async def find(self, id: str, principal: Principal) -> TaskRecord:  # noqa: A002 - the word of the record
        """The task of that id as it is now."""
        work = self._works.get(id)
        found = work.record if work is not None else await self._store.get(id)
        # Its id has 128 random bits, so it is a handle: another token of the same identity may continue it.
        if found is None or not (
            may_continue(found.owner, principal, secret=True) or self._sees_all(principal)
        ):
            raise _not_found()
        return found

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

        Raises Fault (conflict) for a task of another fleet that uses the same ledger.
        """
        found = await self.find(id, principal)
        if is_ended(found):
            return found
        work = self._works.get(id)
        if work is None:
            raise refusals.conflict("another fleet that shares this database does this task; cancel it there")
        work.cancelled = True
        asked = bool(work.record.run_id) and self._kernel.cancel(work.record.run_id)
        if not asked:
            work.interrupt()
        return work.record

    async def answer(self, id: str, principal: Principal, answers: Mapping[str, Answered]) -> None:  # noqa: A002
        """Answer questions of a task. Answers to unknown questions are ignored."""
        await self.find(id, principal)
        if (work := self._works.get(id)) is not None:
            work.answer(answers)

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
            end = failed(work, fault, gone=self._stopping())
        except asyncio.CancelledError:
            end = failed(work, CANCELLED, gone=self._stopping())
        except Exception:
            log.exception("task %s of %s broke", work.record.id[:8], work.record.agent)
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
