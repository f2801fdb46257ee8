"""A question that waits in this process, and the runs that wait for it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pallas.model import Event, QuestionAnswered, QuestionAsked
from pallas.model.questions import Question


class WaitingRun(Protocol):
    """A run in flight as far as its questions need it."""

    id: str
    agent: str
    thread: str
    within: str
    above: tuple[str, ...]

    @property
    def owner(self) -> str:
        """The id of its principal."""
        ...

    @property
    def goes_on_elsewhere(self) -> bool:
        """Whether another fleet goes on with it."""
        ...

    def emit(self, event: Event) -> None:
        """Publish an event of it."""
        ...

    def pause(self) -> None:
        """Stop its ``run_timeout``: a person is asked."""
        ...

    def unpause(self) -> None:
        """Let its ``run_timeout`` go on, once for each ``pause``."""
        ...


@dataclass(slots=True, eq=False)
class WaitingQuestion:
    """A question that waits here, for ``runs``: the one that asks, then those above it."""

    question: Question
    runs: Sequence[WaitingRun]
    done: asyncio.Future[Question] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def end(self, question: Question) -> None:
        """Let the run that waits go on."""
        if not self.done.done():
            self.done.set_result(question)

    def publish(self, event: QuestionAsked | QuestionAnswered) -> None:
        """Publish an event of the run that waits, and tell the callers of the runs above it."""
        for number, run in enumerate(self.runs):
            run.emit(replace(event, run_id=run.id, agent=run.agent, relayed=number > 0))
