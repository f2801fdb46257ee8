"""An agent in a process of its own asks its peers through the fleet: only the fleet may ask them."""

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pallas.executors.fastagent.peer_tools import PeerCalls, PeerTool
from pallas.executors.ipc.child_questions import ChildQuestions, QuestionsToFleet
from pallas.model import Fault, FaultType, TraceContext

from ..base import Emit, ExecutorTurn
from .agent_messages import PeerList, PeerQuestion

MAX_OPEN: Final = 200
"""Questions of one process that may be open at once; more are refused."""

# The process runs a project's code, so what it gives as a span may be anything.
_SPAN: Final = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class PeerAsker:
    """The run on whose behalf a process asks; ``trace`` is the run's own span."""

    turn: ExecutorTurn
    trace: TraceContext | None
    emit: Emit


class PeerAnswers:
    """The fleet's side: asks the peers that the process names; ``calls`` is None without peers."""

    def __init__(self, calls: PeerCalls | None, questions: ChildQuestions) -> None:
        self._calls = calls
        self._questions = questions
        self._sent: tuple[PeerTool, ...] = ()

    def update(self) -> PeerList | None:
        """Return the peers there are now, if the process does not know them yet."""
        if self._calls is None or (tools := self._calls.tools()) is self._sent:
            return None
        self._sent = tools
        return PeerList(tools)

    def answer(self, question: PeerQuestion, asker: PeerAsker | None) -> None:
        """Ask the peer; ``asker`` is None if the run that the process names is over."""
        if self._calls is None or asker is None:
            fault = Fault(FaultType.PROTOCOL, "there is no run for which a peer could be asked")
            self._questions.refuse(question.question, fault)
        elif self._questions.count() >= MAX_OPEN:
            text = f"{MAX_OPEN} questions to peers are open already; ask for less at once"
            self._questions.refuse(question.question, Fault(FaultType.TRANSPORT, text))
        else:
            trace = asker.trace if _SPAN.fullmatch(question.span) else None
            trace = replace(trace, span_id=question.span) if trace is not None else None
            work = partial(
                self._calls.ask,
                question.peer,
                question.text,
                asker.turn,
                trace,
                asker.emit,
                call_id=question.call_id,
            )
            self._questions.answer(question.question, question.call, work)


class PeersThroughFleet:
    """The child's side, as ``PeerCalls``: the fleet says which peers there are, and asks them."""

    def __init__(self, questions: QuestionsToFleet) -> None:
        self._questions = questions
        self._tools: tuple[PeerTool, ...] = ()
        self._calls: dict[str, int] = {}

    def set_tools(self, tools: tuple[PeerTool, ...]) -> None:
        """Replace the peers by those that there are now."""
        self._tools = tools

    def begin_run(self, run_id: str, call: int) -> None:
        """A run begins, which the fleet knows by the number ``call``."""
        self._calls[run_id] = call

    def end_run(self, run_id: str) -> None:
        """A run is over."""
        self._calls.pop(run_id, None)

    def tools(self) -> tuple[PeerTool, ...]:
        """As in ``PeerCalls``: the peers that the fleet sent before the run."""
        return self._tools

    async def ask(
        self,
        peer: str,
        text: str,
        turn: ExecutorTurn,
        trace: TraceContext | None,
        emit: Emit,
        *,
        call_id: str = "",
    ) -> str:
        """As in ``PeerCalls``; the fleet itself reports the events of the peer's run."""
        call = self._calls.get(turn.run_id)
        if call is None:
            raise Fault(FaultType.TRANSPORT, f"{peer} cannot be asked: the run is over")
        span = trace.span_id if trace is not None else ""
        question = partial(PeerQuestion, call, peer=peer, text=text, span=span, call_id=call_id)
        return str(await self._questions.ask(question))
