"""One turn of a conversation: load it, make room, ask the executor, record the answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from time import monotonic, time
from typing import Final

from pallas.executors import Executor, ExecutorTurn, TurnResult
from pallas.executors.live_agent import LiveAgent
from pallas.executors.tool_gate import check_repeatable
from pallas.limits.limit_reached import MARK, STOP_REASON, LimitReached
from pallas.model import (
    Fault,
    FaultType,
    Message,
    Params,
    Principal,
    RunContinued,
    RunRecord,
    RunRequest,
    Usage,
)
from pallas.model.refusals import OF_REQUEST, REASON
from pallas.model.unfinished_calls import NO_RULES, UnfinishedRules
from pallas.questions.questions import Questions
from pallas.runs.compaction import Compaction
from pallas.runs.conversations import QUEUE_TIMEOUT, Conversation, Conversations
from pallas.runs.metering import tell_limit
from pallas.runs.outcomes import late
from pallas.runs.run import ActiveRun
from pallas.runs.run_people import RunPeople
from pallas.runs.thread_store import BegunElsewhere, ThreadBusy, ThreadStore
from pallas.runs.turn_writer import TurnWriter

_OF_CALLER: Final = OF_REQUEST | {"bearer", MARK}
log = logging.getLogger(__name__)

_IN_KERNEL: Final = frozenset({"messages"})
"""Parameters that executors do not get."""
_NOTHING: Final = Usage()
_JOIN_SECONDS: Final = 23 * 3600.0
"""Seconds in which a run elsewhere is joined by its key; keys are valid for a day."""


_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5
"""Seconds between two looks whether the run of another fleet is over."""

type Ready = Callable[[str], tuple[LiveAgent, Executor]]


class ConversationTurns:
    """The turns of one fleet's conversations. The caller of ``take`` holds the conversation's turn."""

    def __init__(self, conversations: Mapping[str, Conversations], questions: Questions) -> None:
        self._conversations = conversations
        self._questions = questions
        self._compaction = Compaction()
        self.thread_store: ThreadStore | None = None

    def use_store(self, thread_store: ThreadStore) -> None:
        """Make conversations durable. Call it before the first turn."""
        self.thread_store = thread_store

    async def in_order(
        self, ready: Ready, run: ActiveRun, request: RunRequest, conversation: Conversation
    ) -> TurnResult:
        """Wait for the conversation's turn and answer; continues in its successor if its thread is another.

        ``ready`` returns the agent of a name and its executor. Raises Fault.
        """
        turn: Conversation | None = conversation
        until, pause = monotonic() + QUEUE_TIMEOUT, _FIRST_PAUSE
        try:
            await self.join_queue(run, request, conversation)
            while turn is not None:
                try:
                    # A run that goes on has its thread already.
                    async with turn.turn(run.seconds_left) if run.before is None else nullcontext():
                        if turn.successor is None:
                            return await self._begin_answer(ready, run, request, turn)
                except BegunElsewhere:
                    pass
                except ThreadBusy as busy:
                    if monotonic() + pause > until:
                        raise busy.fault from None
                    # Without the turn: a run of this fleet may come before this one.
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
                    continue
                turn = turn.successor
            raise Fault(FaultType.TRANSPORT, "this conversation was begun elsewhere; send the message again")
        except BaseException:
            self.leave_queue(run)
            raise

    async def _begin_answer(
        self, ready: Ready, run: ActiveRun, request: RunRequest, turn: Conversation
    ) -> TurnResult:
        run.stats.active += 1
        run.begins()
        try:
            # Looked up only now: the executor may have been exchanged while this run waited.
            agent, run.executor = ready(run.agent)
            run.version = agent.run_version
            return await self.take(agent, run.executor, run, request, turn)
        except BegunElsewhere as other:
            known = other.thread
            self._conversations[run.agent].replace(turn, known.id, known.handle, Principal(known.owner))
            raise
        finally:
            run.stats.active -= 1

    async def take(
        self,
        agent: LiveAgent,
        executor: Executor,
        run: ActiveRun,
        request: RunRequest,
        conversation: Conversation,
    ) -> TurnResult:
        """Ask the executor within the agent's ``run_timeout``. A durable turn is written when this returns.

        Raises Fault, BegunElsewhere if the conversation's thread turns out to be another, and ThreadBusy if
        a run of another fleet has it, or has waited for it longer.
        """
        writer = await self._begin(run, request, conversation)
        try:
            if writer is not None and run.fork is not None and run.before is None:
                await writer.say_first(run.fork)
            try:
                result = await self._answer(agent, executor, run, request, conversation, writer)
            finally:
                run.offers = executor.offers()
        except BaseException as error:
            question = self._keep_partial(run, request, conversation, error)
            if writer is not None:
                await writer.fail(*run.end_of(error), run.draft.text(), question[1:])
            raise
        await self.record(run, request, conversation, result, writer)
        return result

    async def join_queue(self, run: ActiveRun, request: RunRequest, conversation: Conversation) -> None:
        """Queue a run that has to wait here, so that it begins before later ones of other fleets.

        Raises Fault if too many wait.
        """
        store = self.thread_store
        if store is not None and store.is_shared and conversation.durable and run.before is None:
            async with conversation.arrival(run.seconds_left):
                if conversation.waits:
                    await store.join(run, request, conversation)

    def leave_queue(self, run: ActiveRun) -> None:
        """Give up the place of a run that has not begun, or leave it to another fleet. Returns at once."""
        if self.thread_store is not None and run.place is not None:
            self.thread_store.leave(run)

    async def adopt(
        self, run: ActiveRun, request: RunRequest, conversation: Conversation, result: TurnResult
    ) -> str:
        """Keep a throw-away conversation and record its turn; returns the handle made for it."""
        handle = self._conversations[run.agent].adopt(conversation)
        writer = await self._begin(run, request, conversation)
        await self.record(run, request, conversation, result, writer)
        return handle

    async def _begin(
        self, run: ActiveRun, request: RunRequest, conversation: Conversation
    ) -> TurnWriter | None:
        if self.thread_store is None or conversation.key is None or not conversation.durable:
            return None
        conversations = self._conversations[run.agent]
        if run.before is not None:
            return await self.thread_store.resume(run, conversations, conversation)
        return await self.thread_store.begin(run, request, conversations, conversation)

    async def _make_room(
        self,
        agent: LiveAgent,
        executor: Executor,
        run: ActiveRun,
        request: RunRequest,
        conversation: Conversation,
        writer: TurnWriter | None,
    ) -> Usage:
        """Replace messages that do not fit the model's window by a summary; returns the tokens that took, or
        those that a turn that goes on had taken.
        """
        if run.said is not None:
            return run.said.used
        if run.given is not None or conversation.key is None:
            return _NOTHING
        turn = self._turn(agent, run, request, conversation, durable=False)
        known = conversation.tokens if turn.history is conversation.messages else None
        window = executor.info.window or agent.window
        compaction = await self._compaction.of(turn, executor, window, run, known)
        if compaction is None:
            return _NOTHING
        older = len(turn.history) - compaction.left
        if writer is not None:
            await writer.summarise(compaction.summary, older)
        left = tuple(turn.history[older:])
        self._store(run, conversation, (compaction.summary, *left), ())
        run.emit(compaction.event)
        return compaction.usage

    async def _answer(
        self,
        agent: LiveAgent,
        executor: Executor,
        run: ActiveRun,
        request: RunRequest,
        conversation: Conversation,
        writer: TurnWriter | None,
    ) -> TurnResult:
        if request.bearer_lost and agent.forwards_bearer:
            raise _bearer_lost()
        asked = run.seconds_left
        seconds = agent.run_timeout if asked is None else min(agent.run_timeout, asked)
        try:
            async with asyncio.timeout(seconds) as deadline:
                with run.clock.limits(deadline):
                    used = await self._make_room(agent, executor, run, request, conversation, writer)
                    turn = self._turn(agent, run, request, conversation, durable=run.journal is not None)
                    if run.before is not None and not executor.info.continues:
                        if not executor.info.joins or _is_old(run.before):
                            await check_repeatable(turn)
                        run.emit(RunContinued(run_id=run.id, agent=run.agent, attempt=run.attempt))
                    result = await _of_agent(executor.run(turn, run.emit), run)
                    return replace(result, usage=used + result.usage)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise late(run, request, seconds) from None

    def _turn(
        self,
        agent: LiveAgent,
        run: ActiveRun,
        request: RunRequest,
        conversation: Conversation,
        *,
        durable: bool,
    ) -> ExecutorTurn:
        given_params = request.params.over(request.defaults)
        params = given_params.over(agent.params).without(_IN_KERNEL)
        history = conversation.messages or request.history
        text, images = request.text, request.images
        if (given := run.given) is not None:
            history, text, images = given.history, given.text, given.images
            if given.system:
                appended = "\n\n".join(each for each in (params.get("systemAppend"), given.system) if each)
                params = Params({"systemAppend": appended}).over(params)
        return ExecutorTurn(
            run_id=run.id,
            agent=run.agent,
            text=text,
            images=images,
            history=history,
            lease=conversation.key if run.given is None and not conversation.is_nested else None,
            thread=conversation.key or "",
            handle=conversation.handle,
            principal=request.principal.id,
            stream_text=request.stream_text,
            params=params,
            defaulted=frozenset(params.values.keys() - given_params.values.keys()),
            durable=durable,
            provider=request.provider,
            session=request.leased,
            sender=request.sender,
            depth=request.depth,
            bearer=request.bearer,
            bearer_lost=request.bearer_lost,
            journal=run.turn_journal,
            attempt=run.attempt,
            said=run.said.messages[1:] if run.said is not None else (),
            unfinished=_rules(agent, run),
            results=run.said.results if run.said is not None else {},
            people=RunPeople(self._questions, run),
            tool_rules=agent.tool_rules,
            unmade=run.said.unmade if run.said is not None else frozenset(),
            nested=run.said.nested if run.said is not None else frozenset(),
        )

    async def record(
        self,
        run: ActiveRun,
        request: RunRequest,
        conversation: Conversation,
        result: TurnResult,
        writer: TurnWriter | None,
    ) -> None:
        """Add the messages of a run to its conversation, and to its thread if it is durable. Raises Fault."""
        messages, replaces = result.messages, result.replaces
        if run.given is not None and replaces:
            # The compacted history was the caller's own: the thread gets this turn alone.
            question = Message("user", run.given.text, run.given.images)
            messages, replaces = (
                (question, *(Message("assistant", text) for text in result.texts[-1:])),
                False,
            )
        if writer is not None:
            try:
                run.turn_index = await writer.finish(result, messages, replaces=replaces)
            except Fault as fault:
                if fault.data.get(REASON) == "not_found":
                    # Another fleet deleted it: a caller that sends its own handle again begins a new one.
                    self._forget(run, conversation)
                text = "\n\n".join(result.texts)
                data = {**fault.data, "partial": text}
                raise Fault(fault.type, fault.message, data=data, cause=fault.cause) from None
        before = () if replaces else (conversation.messages or (() if run.given else request.history))
        self._store(run, conversation, before, messages)

    def _keep_partial(
        self, run: ActiveRun, request: RunRequest, conversation: Conversation, error: BaseException
    ) -> tuple[Message, ...]:
        """Add the marked partial text of a run that was cut short to its conversation; returns the messages
        added.

        If the caller itself cancelled the run, nothing is added.
        """
        if isinstance(error, Fault) and error.type is FaultType.TIMEOUT and "limit" in error.data:
            why = f"it took longer than {error.data['limit']:g} s"
        elif isinstance(error, asyncio.CancelledError) and run.is_cut:
            why = run.why or "it was cancelled"
        else:
            return ()
        if not (written := run.draft.text()):
            return ()
        text, images = (run.given.text, run.given.images) if run.given else (request.text, request.images)
        exchange = Message("user", text, images), Message("assistant", f"{written}\n\n[cut short: {why}]")
        before = conversation.messages or (() if run.given else request.history)
        self._store(run, conversation, before, exchange)
        return exchange

    def _store(
        self,
        run: ActiveRun,
        conversation: Conversation,
        before: tuple[Message, ...],
        new: tuple[Message, ...],
    ) -> None:
        # The agent may have been deleted during the run.
        if (conversations := self._conversations.get(run.agent)) is not None:
            conversations.store(conversation, before, new)

    def _forget(self, run: ActiveRun, conversation: Conversation) -> None:
        if (conversations := self._conversations.get(run.agent)) is not None:
            conversations.drop(conversation.thread)


def _is_old(before: RunRecord) -> bool:
    """Whether what a run asked for elsewhere may be forgotten there."""
    return time() - before.started_at > _JOIN_SECONDS


def _rules(agent: LiveAgent, run: ActiveRun) -> UnfinishedRules:
    """What becomes of calls that were begun: a run that goes on from another one makes them again."""
    if run.fork is not None:
        return UnfinishedRules((("*", "repeat"),))
    return agent.unfinished if run.said is not None else NO_RULES


def _bearer_lost() -> Fault:
    return Fault(
        FaultType.UPSTREAM,
        "the fleet was stopped in the middle of this turn, and its caller's token, which it sends along, is "
        "not stored: send the message again",
    )


async def _of_agent(work: Awaitable[TurnResult], run: ActiveRun) -> TurnResult:
    try:
        result = await work
        if result.stop_reason == STOP_REASON:
            tell_limit(run)
        return result
    except Fault as fault:
        if isinstance(fault, LimitReached):
            tell_limit(run)
        fault.of_agent = True
        # What a caller sent, such as a parameter or a refused token, says nothing of the agent.
        run.of_agent = fault.type is not FaultType.PROTOCOL and _OF_CALLER.isdisjoint(fault.data)
        raise
