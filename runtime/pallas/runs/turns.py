"""One turn of a conversation: load it, make room, ask the executor, record the answer."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Final

from pallas.executors import Executor, ExecutorTurn, TurnResult
from pallas.executors.live_agent import LiveAgent
from pallas.model import Fault, FaultType, Message, Params, RunRequest, Usage
from pallas.model.refusals import OF_REQUEST, REASON
from pallas.runs.compaction import Compaction, both
from pallas.runs.conversations import Conversation, Conversations
from pallas.runs.run import ActiveRun
from pallas.runs.thread_store import ThreadStore
from pallas.runs.turn_writer import TurnWriter

_OF_CALLER: Final = OF_REQUEST | {"bearer"}
log = logging.getLogger(__name__)

_IN_KERNEL: Final = frozenset({"messages"})
"""Parameters that executors do not get."""
_NOTHING: Final = Usage()


class ConversationTurns:
    """The turns of one fleet's conversations. The caller of ``take`` holds the conversation's turn."""

    def __init__(self, conversations: Mapping[str, Conversations]) -> None:
        self._conversations = conversations
        self._compaction = Compaction()
        self.thread_store: ThreadStore | None = None

    def use_store(self, thread_store: ThreadStore) -> None:
        """Make conversations durable. Call it before the first turn."""
        self.thread_store = thread_store

    async def take(
        self,
        agent: LiveAgent,
        executor: Executor,
        run: ActiveRun,
        request: RunRequest,
        conversation: Conversation,
    ) -> TurnResult:
        """Ask the executor within the agent's ``run_timeout``. A durable turn is written when this returns.

        Raises Fault, and BegunElsewhere if the conversation's thread turns out to be another.
        """
        writer = await self._begin(run, request, conversation)
        try:
            result = await self._answer(agent, executor, run, request, conversation, writer)
        except BaseException as error:
            question = self._keep_partial(run, request, conversation, error)
            if writer is not None:
                await writer.fail(*run.end_of(error), run.draft.text(), question[1:])
            raise
        await self.record(run, request, conversation, result, writer)
        return result

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
        """Replace messages that do not fit the model's window by a summary; returns the tokens that took."""
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
        asked = run.seconds_left
        seconds = agent.run_timeout if asked is None else min(agent.run_timeout, asked)
        try:
            async with asyncio.timeout(seconds) as deadline:
                used = await self._make_room(agent, executor, run, request, conversation, writer)
                turn = self._turn(agent, run, request, conversation, durable=run.journal is not None)
                result = await _of_agent(executor.run(turn, run.emit), run)
                return replace(result, usage=both(used, result.usage))
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
        params = request.params.over(request.defaults.over(agent.params)).without(_IN_KERNEL)
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
            lease=conversation.key if run.given is None else None,
            thread=conversation.key or "",
            handle=conversation.handle,
            principal=request.principal.id,
            stream_text=request.stream_text,
            params=params,
            durable=durable,
            provider=request.provider,
            session=request.leased,
            sender=request.sender,
            depth=request.depth,
            bearer=request.bearer,
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


async def _of_agent(work: Awaitable[TurnResult], run: ActiveRun) -> TurnResult:
    try:
        return await work
    except Fault as fault:
        fault.of_agent = True
        # What a caller sent, such as a parameter or a refused token, says nothing of the agent.
        run.of_agent = fault.type is not FaultType.PROTOCOL and _OF_CALLER.isdisjoint(fault.data)
        raise


def late(run: ActiveRun, request: RunRequest, seconds: float) -> Fault:
    """The Fault for the caller of a run that took longer than ``seconds`` (TIMEOUT, DR-15)."""
    limit = request.timeout
    if limit is not None and run.seconds_left is not None and run.seconds_left <= 0:
        what = (
            f"the run took longer than the {limit:.3g} s that its caller gave it and was stopped; "
            f"raise timeout"
        )
    else:
        limit = seconds
        what = (
            f"the run took longer than {seconds:g} s and was stopped; ask for less at once, or raise "
            f"run_timeout of {run.agent} in agents.yaml"
        )
    return Fault(FaultType.TIMEOUT, what, data={"limit": limit, **run.rest(request)})
