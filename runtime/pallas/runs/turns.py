"""A conversation's turn: what is known of it is loaded, its question asked, and what came of that kept."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Final

from pallas.executors import Executor, ExecutorTurn, TurnResult
from pallas.executors.live_agent import LiveAgent
from pallas.model import Fault, FaultType, Message, Params, RunRequest, Usage
from pallas.model.refusals import REASON
from pallas.runs.compaction import Compaction, both
from pallas.runs.conversations import Conversation, Conversations
from pallas.runs.run import ActiveRun
from pallas.runs.thread_store import ThreadStore
from pallas.runs.turn_writer import TurnWriter

log = logging.getLogger(__name__)

_IN_KERNEL: Final = frozenset({"messages"})
"""Parameters that no executor has to know of."""
_NOTHING: Final = Usage()


class ConversationTurns:
    """The turns of one fleet's conversations. Who calls ``take`` holds the conversation's turn."""

    def __init__(self, conversations: Mapping[str, Conversations]) -> None:
        self._conversations = conversations
        self._compaction = Compaction()
        self.keeper: ThreadStore | None = None

    def keep_in(self, keeper: ThreadStore) -> None:
        """Make conversations durable; to be said before the first turn."""
        self.keeper = keeper

    async def take(
        self,
        agent: LiveAgent,
        executor: Executor,
        run: ActiveRun,
        request: RunRequest,
        conversation: Conversation,
    ) -> TurnResult:
        """Ask the executor, within the agent's ``run_timeout``; what is durable is written when it returns.

        Raises Fault, and BegunElsewhere where the conversation's thread turns out to be another.
        """
        kept = await self._begin(run, request, conversation)
        try:
            result = await self._answer(agent, executor, run, request, conversation, kept)
        except BaseException as error:
            said = self._keep(run, request, conversation, error)
            if kept is not None:
                await kept.fail(*run.end_of(error), run.draft.text(), said[1:])
            raise
        await self.record(run, request, conversation, result, kept)
        return result

    async def adopt(
        self, run: ActiveRun, request: RunRequest, conversation: Conversation, result: TurnResult
    ) -> str:
        """Keep what was said in a throw-away conversation after all; returns the handle made for it."""
        handle = self._conversations[run.agent].adopt(conversation)
        kept = await self._begin(run, request, conversation)
        await self.record(run, request, conversation, result, kept)
        return handle

    async def _begin(
        self, run: ActiveRun, request: RunRequest, conversation: Conversation
    ) -> TurnWriter | None:
        if self.keeper is None or conversation.key is None or not conversation.durable:
            return None
        conversations = self._conversations[run.agent]
        return await self.keeper.begin(run, request, conversations, conversation)

    async def _make_room(
        self,
        agent: LiveAgent,
        executor: Executor,
        run: ActiveRun,
        request: RunRequest,
        conversation: Conversation,
        kept: TurnWriter | None,
    ) -> Usage:
        """A summary in place of what is too much for the model's window; what that took."""
        if run.given is not None or conversation.key is None:
            return _NOTHING
        turn = self._turn(agent, run, request, conversation, durable=False)
        known = conversation.tokens if turn.history is conversation.messages else None
        window = executor.info.window or agent.window
        made = await self._compaction.of(turn, executor, window, run, known)
        if made is None:
            return _NOTHING
        older = len(turn.history) - made.left
        if kept is not None:
            await kept.summarise(made.summary, older)
        left = tuple(turn.history[older:])
        self._store(run, conversation, (made.summary, *left), ())
        run.emit(made.event)
        return made.usage

    async def _answer(
        self,
        agent: LiveAgent,
        executor: Executor,
        run: ActiveRun,
        request: RunRequest,
        conversation: Conversation,
        kept: TurnWriter | None,
    ) -> TurnResult:
        asked = run.seconds_left
        seconds = agent.run_timeout if asked is None else min(agent.run_timeout, asked)
        try:
            async with asyncio.timeout(seconds) as deadline:
                used = await self._make_room(agent, executor, run, request, conversation, kept)
                turn = self._turn(agent, run, request, conversation, durable=run.journal is not None)
                result = await _of_agent(executor.run(turn, run.emit))
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
        kept: TurnWriter | None,
    ) -> None:
        """Make what a run said part of its conversation, and durable where that is. Raises Fault."""
        messages, replaces = result.messages, result.replaces
        if run.given is not None and replaces:
            # What was compacted was the caller's own history: the thread gets this turn alone.
            said = Message("user", run.given.text, run.given.images)
            messages, replaces = (said, *(Message("assistant", text) for text in result.texts[-1:])), False
        if kept is not None:
            try:
                run.turn_index = await kept.finish(result, messages, replaces=replaces)
            except Fault as fault:
                if fault.data.get(REASON) == "not_found":
                    # Another fleet deleted it: who comes again by a handle of its own begins anew.
                    self._forget(run, conversation)
                text = "\n\n".join(result.texts)
                data = {**fault.data, "partial": text}
                raise Fault(fault.type, fault.message, data=data, cause=fault.cause) from None
        before = () if replaces else (conversation.messages or (() if run.given else request.history))
        self._store(run, conversation, before, messages)

    def _keep(
        self, run: ActiveRun, request: RunRequest, conversation: Conversation, error: BaseException
    ) -> tuple[Message, ...]:
        """What a run has written so far becomes part of its conversation, marked, where it was cut short.

        A caller that goes away does not want it to have been said. Returns what is there now in its place.
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
        kept = Message("user", text, images), Message("assistant", f"{written}\n\n[cut short: {why}]")
        before = conversation.messages or (() if run.given else request.history)
        self._store(run, conversation, before, kept)
        return kept

    def _store(
        self,
        run: ActiveRun,
        conversation: Conversation,
        before: tuple[Message, ...],
        new: tuple[Message, ...],
    ) -> None:
        # Its agent may have been deleted while it ran.
        if (conversations := self._conversations.get(run.agent)) is not None:
            conversations.store(conversation, before, new)

    def _forget(self, run: ActiveRun, conversation: Conversation) -> None:
        if (conversations := self._conversations.get(run.agent)) is not None:
            conversations.drop(conversation.thread)


async def _of_agent(work: Awaitable[TurnResult]) -> TurnResult:
    try:
        return await work
    except Fault as fault:
        fault.of_agent = True
        raise


def late(run: ActiveRun, request: RunRequest, seconds: float) -> Fault:
    """What the caller of a run is told that took longer than those ``seconds`` (TIMEOUT, DR-15)."""
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
