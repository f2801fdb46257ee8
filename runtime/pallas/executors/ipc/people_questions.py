"""A run in a process of its own asks people through the fleet, which alone keeps questions."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

from pallas.model import Fault, FaultType
from pallas.model.codec import decode, encode_fields
from pallas.model.questions import Question

from ..base import People
from .child_messages import Number
from .child_questions import ChildQuestions, QuestionsToFleet

MAX_OPEN: Final = 200
"""Questions of one process that may be open at once; more are refused."""


@dataclass(frozen=True, slots=True)
class PeopleQuestion:
    """The turn ``call`` asks for an approval or a form; as in ``People``."""

    call: Number
    question: Number
    kind: Literal["approval", "form"]
    message: str = field(default="", repr=False)
    tool: str = ""
    server: str = ""
    call_id: str = ""
    arguments: dict[str, Any] = field(default_factory=dict, repr=False)
    schema: dict[str, Any] = field(default_factory=dict, repr=False)
    seconds: float | None = None


def ask_people(questions: ChildQuestions, asked: PeopleQuestion, people: People | None) -> None:
    """Have ``people`` asked, in the fleet; None if the run that the process names is over."""
    if people is None or questions.count() >= MAX_OPEN:
        fault = Fault(FaultType.TRANSPORT, "the run is over, or asks too much at once")
        questions.refuse(asked.question, fault)
        return
    questions.answer(asked.question, asked.call, partial(_answer, asked, people))


async def _answer(asked: PeopleQuestion, people: People) -> dict[str, Any]:
    about = {"tool": asked.tool, "server": asked.server, "call_id": asked.call_id, "message": asked.message}
    work: Awaitable[Question]
    if asked.kind == "approval":
        work = people.approve(arguments=asked.arguments, **about)
    else:
        work = people.form(schema=asked.schema, seconds=asked.seconds, **about)
    return encode_fields(await work)


class PeopleThroughFleet:
    """The child's side, as ``People``. ``call`` is the number of the turn there."""

    def __init__(self, call: int, questions: QuestionsToFleet) -> None:
        self._call = call
        self._questions = questions

    async def approve(
        self, *, tool: str, arguments: Mapping[str, Any], call_id: str, server: str = "", message: str = ""
    ) -> Question:
        """As in ``People``."""
        return await self._ask(
            partial(
                PeopleQuestion,
                kind="approval",
                tool=tool,
                arguments=dict(arguments),
                call_id=call_id,
                server=server,
                message=message,
            )
        )

    async def form(
        self,
        *,
        message: str,
        schema: Mapping[str, Any],
        server: str = "",
        tool: str = "",
        call_id: str = "",
        seconds: float | None = None,
    ) -> Question:
        """As in ``People``."""
        return await self._ask(
            partial(
                PeopleQuestion,
                kind="form",
                message=message,
                schema=dict(schema),
                server=server,
                tool=tool,
                call_id=call_id,
                seconds=seconds,
            )
        )

    async def _ask(self, question: Callable[..., PeopleQuestion]) -> Question:
        return decode(Question, await self._questions.ask(partial(question, self._call)))
