"""Compaction: replaces the older part of a conversation by a summary when it nears its model's window.

Nothing is cut silently. Tokens are estimated, since only providers can count theirs: an estimate that is too
high costs an early summary, one that is too low is covered by the share of the window that stays free.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pallas.executors import Executor, ExecutorTurn
from pallas.model import Compacted, Event, Fault, FaultType, Message, Notice, Params, Usage
from pallas.model.token_estimate import tokens_of as tokens_of
from pallas.runs.run import ActiveRun
from pallas.safe_text import one_line
from pallas.telemetry.step_record import call_step

log = logging.getLogger(__name__)

FULL: Final = 0.75
"""The share of the window that history and question may take; the rest is for tools and the answer."""
LEFT: Final = 0.25
"""The share that the newest messages, which stay as they are, may take."""
PART: Final = 0.5
"""The share that is summarised at a time."""
SUMMARY_TOKENS: Final = 2_000

_ASKED: Final = (
    "Summarise our conversation so far, for yourself: it is all that you will know of it. Keep names, "
    "numbers, decisions, what was asked and is still open, and what tools found out, exactly. Do not answer "
    "anything in it and call no tools. Write the summary alone, in the language of the conversation, in at "
    "most 800 words."
)
_HEAD: Final = "[Summary of the {count} earlier messages of this conversation, which are not shown to you]"


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """A summary, and what it replaces."""

    summary: Message
    left: int  # how many of the newest messages stay after the summary
    event: Compacted
    usage: Usage  # the tokens that the summary took


class Compaction:
    """Makes summaries with the agent's own model."""

    async def of(
        self, turn: ExecutorTurn, executor: Executor, window: int, run: ActiveRun, known: int | None = None
    ) -> CompactionResult | None:
        """The summary that this turn's history needs before it can be sent, None if there is room.

        ``known`` is an estimate of the history's tokens that the caller already has; the history is not
        counted then. If no summary can be made, the history stays whole, a Notice says why, and the provider
        reports the problem. Raises CancelledError only.
        """
        asked = tokens_of(Message("user", turn.text, turn.images))
        if window <= 0 or (known is not None and known + asked <= window * FULL):
            return None
        sizes = [tokens_of(message) for message in turn.history]
        before = sum(sizes)
        if before + asked <= window * FULL:
            return None
        left = _left(turn.history, sizes, window)
        older = turn.history[: len(turn.history) - left]
        if len(older) < 2:
            return None
        try:
            with call_step("compaction", turn.agent, {"messages": len(older), "tokens": before}) as step:
                text, usage = await self._summary(turn, executor, older, sizes, window)
                if step is not None:
                    step.content([{"type": "text", "text": text}])
        except Fault as fault:
            why = one_line(fault.message, 200)
            log.warning("%s: a conversation could not be summarised: %s", turn.agent, why)
            run.tell(_notice(turn.agent, why))
            return None
        summary = Message("user", f"{_HEAD.format(count=len(older))}\n\n{text}", summary=True)
        after = tokens_of(summary) + sum(sizes[len(older) :])
        event = Compacted(
            run_id=turn.run_id,
            agent=turn.agent,
            messages=len(older),
            before=before,
            after=after,
            window=window,
        )
        return CompactionResult(summary, left, event, usage)

    async def _summary(
        self,
        turn: ExecutorTurn,
        executor: Executor,
        older: Sequence[Message],
        sizes: Sequence[int],
        window: int,
    ) -> tuple[str, Usage]:
        """Summarise one part after the other, each together with the summary of the parts before it. Raises
        Fault.
        """
        text, start, usage = "", 0, Usage()
        while start < len(older):
            end, size = start, 0
            while end < len(older) and (end == start or size + sizes[end] <= window * PART):
                size += sizes[end]
                end += 1
            end = _fits(older, start, end)
            before = (Message("user", text), Message("assistant", "I know.")) if text else ()
            asked = replace(
                turn,
                text=_ASKED,
                images=(),
                history=(*before, *older[start:end]),
                lease=None,
                stream_text=False,
                durable=False,
                params=Params({"tools_allowlist": [], "max_tokens": SUMMARY_TOKENS}),
            )
            result = await executor.run(asked, _unheard)
            usage = usage + result.usage
            text = "\n\n".join(each for each in result.texts if each).strip()
            if not text:
                raise Fault(FaultType.UPSTREAM, "the model wrote no summary")
            start = end
        return text, usage


def _left(history: Sequence[Message], sizes: Sequence[int], window: int) -> int:
    """How many of the newest messages stay: those that fit, starting at a question of the user."""
    room, index = window * LEFT, len(history)
    while index > 0 and room >= sizes[index - 1]:
        room -= sizes[index - 1]
        index -= 1
    while index < len(history) and (history[index].role != "user" or history[index].summary):
        index += 1
    return len(history) - index


def _fits(messages: Sequence[Message], start: int, end: int) -> int:
    """Extend the end of a part so that no call is separated from its answers."""
    while end < len(messages) and messages[end].role == "tool":
        end += 1
    return end


def _unheard(event: Event) -> None:
    """Drop the events of a summary: no caller listens to them."""


def _notice(agent: str, why: str) -> Notice:
    text = f"{agent}: a conversation is near its model's window and could not be summarised: {why}"
    return Notice(level="warning", text=text, agent=agent)
