"""The questions of one fleet: ask a person, wait for the answer, take answers.

A question is stored before it is shown, and its answer before the run that waits gets it. It ends once: by an
answer, by its deadline, or with its run.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from time import time
from typing import Any, Final

from pallas.access.grants import Grants
from pallas.access.identity import may_continue
from pallas.model import (
    Fault,
    FaultType,
    Page,
    Principal,
)
from pallas.model.grant_rules import CONTROL_FULL, holds_control
from pallas.model.other_workers import ANSWER_QUESTION, OtherWorkers
from pallas.model.questions import (
    APPROVAL_SECONDS,
    BY_DEADLINE,
    BY_END,
    AuditRecord,
    Question,
    QuestionAnswer,
    QuestionState,
    call_digest,
    mint_question,
)
from pallas.model.refusals import conflict, forbidden, not_found
from pallas.safe_text import one_line, sanitize
from pallas.toolbox.plain_json import json_text

from .answer_check import checked
from .form_schema import clean_schema
from .question_events import answered_event, asked_event, audit_entry, ended_by, log_answer
from .question_records import CallOfRun, MemoryRecords, QuestionRecords
from .waiting_question import WaitingQuestion, WaitingRun

log = logging.getLogger("pallas.audit")

MAX_OPEN: Final = 1_000
MAX_OPEN_OF_RUN: Final = 16
"""Questions that wait at a time: of a fleet, and of one run."""
LOOK_SECONDS: Final = 1.0
"""Seconds between two looks whether another fleet of the ledger took an answer."""
MAX_NAME: Final = 400
MAX_MESSAGE: Final = 4_000
MAX_ARGUMENTS: Final = 20_000
"""Most characters of a tool's name, a message and a call's arguments, as people see them."""
_LATE: Final = 60.0
"""Seconds after its deadline until a question is ended that its run did not end."""
_BATCHES: Final = 10
"""Pages that are read to fill one page for a person who may answer for some agents only."""


class Questions:
    """The questions of a fleet. Belongs to its event loop.

    ``chain`` returns a run in flight and the runs above it that are in flight here, outermost last; empty for
    a run that is over. ``open_here`` are the questions whose runs wait in this process.
    """

    def __init__(self, chain: Callable[[str], Sequence[WaitingRun]]) -> None:
        self._chain = chain
        self.records: QuestionRecords = MemoryRecords()
        self.others: OtherWorkers | None = None
        self._grants: Callable[[], Grants] = Grants
        self._seconds: Callable[[], float] = lambda: APPROVAL_SECONDS
        self._waiting: dict[str, WaitingQuestion] = {}
        self._own: set[asyncio.Task[Any]] = set()
        self._looking: asyncio.Task[None] | None = None

    def adopt(self, grants: Callable[[], Grants], seconds: Callable[[], float]) -> None:
        """Go by the permissions of a fleet; ``seconds`` is how long questions are open.

        Call it before the first run.
        """
        self._grants, self._seconds = grants, seconds

    # For the runs that ask

    async def approve(
        self,
        *,
        run_id: str,
        tool: str,
        arguments: Mapping[str, Any] | None,
        call_id: str,
        part: int = 0,
        server: str = "",
        message: str = "",
        goes_on: bool = False,
        agent: str = "",
    ) -> Question:
        """Ask whether a call may be made, and return the question once it is over.

        ``agent`` is who calls, if that is not the run's own.

        The call may be made if it ``is_accepted``: then it is marked as used, or an earlier answer ``always``
        holds. In a run that ``goes_on`` after its fleet died, what was asked about the same call before
        counts: a question that is open still waits, one that was answered and not used is answered. Raises
        Fault: UPSTREAM if no more questions can wait or the run is over, PROTOCOL for arguments that are no
        JSON and for a name that cannot be shown as it is.
        """
        if one_line(tool, MAX_NAME) != tool:
            raise Fault(FaultType.PROTOCOL, "its name is too long, or has characters that cannot be shown")
        try:
            digest = call_digest(tool, arguments)
        except ValueError as error:
            raise Fault(FaultType.PROTOCOL, f"the arguments of {one_line(tool, 80)}: {error}") from None
        question = await self._made(
            Question(
                id=mint_question(),
                kind="approval",
                run_id=run_id,
                agent=agent,
                tool=tool,
                server=server,
                call_id=call_id,
                part=part,
                digest=digest,
                arguments=json_text(dict(arguments or {}), MAX_ARGUMENTS),
                message=message or f"May {{agent}} call {one_line(tool, 200)}?",
            )
        )
        known = await self.records.of_call(CallOfRun(run_id, part, call_id, digest)) if goes_on else None
        if known is not None and _still_counts(known):
            ended = await self._wait(known) if known.is_open else known
        elif question.may_be_always and (standing := await self.records.standing(question)) is not None:
            await self.records.note(audit_entry(question, question.owner, "standing", f"by {standing.id}"))
            return standing
        else:
            ended = await self.ask(question)
        return await self._used(ended) if ended.is_accepted else ended

    async def form(
        self,
        *,
        run_id: str,
        message: str,
        schema: Mapping[str, Any],
        server: str = "",
        tool: str = "",
        call_id: str = "",
        seconds: float | None = None,
    ) -> Question:
        """Have a person fill a form, and return the question once it is over. Raises Fault as ``approve``."""
        question = Question(
            id=mint_question(),
            kind="form",
            run_id=run_id,
            agent="",
            tool=tool,
            server=server,
            call_id=call_id,
            message=message,
            schema=clean_schema(schema),
        )
        return await self.ask(await self._made(question, seconds))

    async def ask(self, question: Question) -> Question:
        """Store and publish a question, wait for its end, and return it as it ended.

        Its deadline is ``expires_at``. Cancelling this withdraws it, unless its run goes on elsewhere. Raises
        Fault (UPSTREAM) if no more questions can wait or its run is over.
        """
        of_run = sum(each.question.run_id == question.run_id for each in self._waiting.values())
        if of_run >= MAX_OPEN_OF_RUN or len(self._waiting) >= MAX_OPEN:
            raise Fault(
                FaultType.UPSTREAM,
                f"too many questions wait for people ({of_run} of this run); answer some first",
            )
        try:
            await self.records.add(question, audit_entry(question, question.agent, "asked"))
        except asyncio.CancelledError:  # it may be stored all the same
            self._leave(WaitingQuestion(question, self._chain(question.run_id)))
            raise
        return await self._wait(question)

    # For people

    async def answer(self, id: str, answer: QuestionAnswer, principal: Principal) -> Question:  # noqa: A002
        """Answer a question; returns it as it is then.

        Raises Fault: not found, also for one that the principal may not see; AUTH if it may not answer;
        conflict for one that is over; PROTOCOL for content that does not fit its form.
        """
        question = await self.get(id, principal)
        if not self._may_answer(question, principal):
            needed = f"approve:agents:{question.agent}"
            raise forbidden(f"this question is another caller's, and you lack {needed}", grant=needed)
        now = time()
        if question.is_open and question.expires_at <= now:
            await self._expire(question)
            question = await self.get(id, principal)
        if not question.is_open:
            raise conflict(f"this question is over: {ended_by(question)}", state=question.state)
        answer = checked(question, answer)
        ended = replace(
            question,
            state="answered",
            action=answer.action,
            always=answer.always,
            content=dict(answer.content),
            answered_by=principal.id,
            answered_at=now,
        )
        entry = audit_entry(ended, principal.id, "always" if answer.always else answer.action)
        if not await self.records.end(ended, entry):
            found = await self.get(id, principal)
            raise conflict(f"this question is over: {ended_by(found)}", state=found.state)
        log_answer(ended, principal)
        self.hear_answer(ended)
        return ended

    async def get(self, id: str, principal: Principal) -> Question:  # noqa: A002 - the word of the record
        """The question of that id. Raises Fault (not found), also for one that is another caller's."""
        found = await self.records.get(id)
        if found is None or not self._may_see(found, principal):
            raise not_found("question not found: it is unknown, deleted, or belongs to another caller")
        return found

    async def list(
        self,
        principal: Principal,
        *,
        state: QuestionState | None = "open",
        run_id: str = "",
        thread: str = "",
        limit: int = 50,
        cursor: str = "",
    ) -> Page[Question]:
        """The questions that the principal may see, newest first. ``limit`` is 1 to 200.

        Raises Fault: AUTH if permissions are checked and the caller is not known, PROTOCOL on a bad cursor.
        """
        grants = self._grants()
        grants.require_known(principal)
        sees_all = holds_control(principal) or grants.allows(principal, "approve", "agents")
        owner = None if sees_all or grants.may_approve_some(principal) else principal.id
        found: list[Question] = []
        for _ in range(_BATCHES):
            page = await self.records.list(
                owner=owner,
                state=state,
                run_id=run_id,
                thread=thread,
                limit=limit - len(found),
                cursor=cursor,
            )
            found += [each for each in page.items if self._may_see(each, principal)]
            cursor = page.next
            if len(found) == limit or not cursor:
                break
        return Page(tuple(found), cursor)

    async def audit(
        self,
        principal: Principal,
        *,
        who: str = "",
        run: str = "",
        tool: str = "",
        limit: int = 50,
        cursor: str = "",
    ) -> Page[AuditRecord]:
        """The audit log, newest first: for the control token, the local user, and ``approve:agents``.

        Raises Fault: AUTH for others, PROTOCOL on a bad cursor.
        """
        if not holds_control(principal):
            self._grants().require(principal, "approve", "agents")
        return await self.records.audit(who=who, run=run, tool=tool, limit=limit, cursor=cursor)

    def open_of(self, root_run_id: str) -> tuple[Question, ...]:
        """The open questions of a tree of runs that wait here; by the id of its root, or of a run in it."""
        return tuple(
            each.question
            for each in self._waiting.values()
            if root_run_id == each.question.root or any(run.id == root_run_id for run in each.runs)
        )

    @property
    def open_here(self) -> tuple[Question, ...]:
        """The open questions whose runs wait in this process."""
        return tuple(each.question for each in self._waiting.values())

    # For the fleet

    def hear_answer(self, ended: Question) -> None:
        """Let the run that waits go on; elsewhere on this machine if it does not wait here."""
        if (waiting := self._waiting.get(ended.id)) is not None:
            waiting.end(ended)
        elif self.others is not None:
            self.others.tell(ANSWER_QUESTION, ended.id)

    def end_run(self, run_id: str) -> None:
        """Withdraw what another fleet asked for a run and this one did not go on with. Returns at once."""
        self._spawn(self._end_run(run_id))

    def hear_note(self, id: str) -> None:  # noqa: A002 - the word of the record
        """Look at a question that another process says it took an answer to."""
        if id in self._waiting:
            self._spawn(self._look((id,)))

    async def tidy(self) -> None:
        """End questions whose time was over a while ago: their fleets died, and no run goes on with them."""
        try:
            await self.records.expire(time() - _LATE)
        except Fault as fault:
            log.warning("questions that expired were not ended: %s", fault.message)

    async def close(self, seconds: float = 1.0) -> None:
        """Finish what is being written. Call it when all runs are over. Safe to call twice."""
        if self._looking is not None:
            self._looking.cancel()
        if self._own:
            await asyncio.wait(self._own, timeout=seconds)
        for task in self._own:
            task.cancel()

    # How it is done

    async def _made(self, question: Question, seconds: float | None = None) -> Question:
        """The question with what is known of its run. Raises Fault (UPSTREAM) if the run is over."""
        runs = self._chain(question.run_id)
        if not runs:
            raise Fault(FaultType.UPSTREAM, "the run that asks is over")
        run, top, now = runs[0], runs[-1], time()
        root, thread, owner = top.id, top.thread, top.owner
        if top.within:  # it goes on in another fleet
            found = await self.records.root_of(top.id)
            root, thread, owner = found[0], found[1], found[2] or owner
        agent = question.agent or run.agent
        waiting = [each.agent for each in reversed(runs)]
        named = one_line(agent, 80)
        return replace(
            question,
            agent=agent,
            path=(*top.above, *(waiting[:-1] if agent == run.agent else waiting)),
            root=root,
            thread=thread,
            owner=owner,
            message=sanitize(question.message.replace("{agent}", named), MAX_MESSAGE),
            asked_at=now,
            expires_at=now + (self._seconds() if seconds is None else seconds),
        )

    async def _wait(self, question: Question) -> Question:
        waiting = WaitingQuestion(question, self._chain(question.run_id))
        self._waiting[question.id] = waiting
        for run in waiting.runs:
            run.pause()
        if self.records.is_shared and self._looking is None:
            self._looking = asyncio.create_task(self._look_on(), name="look for answers")
        try:
            waiting.publish(asked_event(question))
            ended = await self._ended(waiting)
        except asyncio.CancelledError:
            self._leave(waiting)
            raise
        finally:
            del self._waiting[question.id]
            for run in waiting.runs:
                run.unpause()
        waiting.publish(answered_event(ended))
        return ended

    async def _ended(self, waiting: WaitingQuestion) -> Question:
        left = waiting.question.expires_at - time()
        await asyncio.wait({waiting.done}, timeout=max(0.0, left))
        return waiting.done.result() if waiting.done.done() else await self._expire(waiting.question)

    async def _expire(self, question: Question) -> Question:
        """End a question whose time is over; an answer that came first counts."""
        ended = replace(question, state="expired", answered_by=BY_DEADLINE, answered_at=time())
        if await self.records.end(ended, audit_entry(ended, BY_DEADLINE, "expired")):
            return ended
        return await self.records.get(question.id) or ended

    def _leave(self, waiting: WaitingQuestion) -> None:
        """Withdraw a question that nobody waits for any more, unless its run goes on elsewhere."""
        if waiting.runs and not waiting.runs[0].goes_on_elsewhere:
            self._spawn(self._withdraw(waiting))

    async def _withdraw(self, waiting: WaitingQuestion) -> None:
        ended = replace(waiting.question, state="withdrawn", answered_by=BY_END, answered_at=time())
        try:
            if await self.records.end(ended, audit_entry(ended, BY_END, "withdrawn")):
                waiting.publish(answered_event(ended))
        except Fault as fault:
            log.warning("question %s could not be withdrawn: %s", ended.id, fault.message)

    async def _end_run(self, run_id: str) -> None:
        try:
            for each in (await self.records.list(run_id=run_id)).items:
                if each.run_id == run_id:
                    await self._withdraw(WaitingQuestion(each, ()))
        except Fault as fault:
            log.warning("questions of run %s could not be withdrawn: %s", run_id, fault.message)

    async def _used(self, question: Question) -> Question:
        """Mark an approval as used before its call is made. Raises Fault (UPSTREAM) if it was."""
        if not await self.records.use(question.id, audit_entry(question, question.agent, "used")):
            raise Fault(FaultType.UPSTREAM, "this approval was used already; it holds for one call")
        return replace(question, used=True)

    async def _look_on(self) -> None:
        """Look for answers that other fleets took, as long as questions wait here."""
        try:
            while self._waiting:
                await asyncio.sleep(LOOK_SECONDS)
                await self._look(tuple(self._waiting))
        finally:
            self._looking = None

    async def _look(self, ids: Sequence[str]) -> None:
        try:
            found = await self.records.ended(ids) if ids else ()
        except Fault as fault:
            log.info("the answers of other fleets could not be looked up: %s", fault.message)
            return
        for each in found:
            if (waiting := self._waiting.get(each.id)) is not None:
                waiting.end(each)

    def _may_answer(self, question: Question, principal: Principal) -> bool:
        if may_continue(question.owner, principal, secret=True):
            return True
        if principal.is_local or principal.id == CONTROL_FULL:
            return True
        grants = self._grants()
        return any(grants.allows(principal, "approve", "agents", each) for each in question.agents)

    def _may_see(self, question: Question, principal: Principal) -> bool:
        return holds_control(principal) or self._may_answer(question, principal)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._own.add(task)
        task.add_done_callback(self._own.discard)


def _still_counts(question: Question) -> bool:
    """Whether a question of a run that goes on is not asked again. A yes holds until its deadline."""
    if question.used or question.state == "withdrawn":
        return False
    return not question.is_accepted or question.expires_at > time()
