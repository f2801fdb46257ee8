"""A child has people fill forms through its fleet, which alone knows whose run it is."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from pallas.asking import Answered, Asker
from pallas.model import Fault, FaultType
from pallas.model.codec import Undecodable, decode, encode_fields

from .child_messages import FormQuestion
from .child_questions import ChildQuestions, QuestionsToFleet

MAX_FORMS: Final = 16
"""Forms of one call that wait for people at a time."""
_MAX_MESSAGE: Final = 100_000


def answer_form(questions: ChildQuestions, message: FormQuestion, asker: Asker | None) -> None:
    """Have people asked on behalf of the call's run; ``asker`` is None if that is over."""
    if asker is None or questions.count(message.call) >= MAX_FORMS:
        text = (
            "the run that asks is over" if asker is None else f"{MAX_FORMS} of its questions are open already"
        )
        questions.refuse(message.question, Fault(FaultType.UPSTREAM, text))
        return
    questions.answer(message.question, message.call, partial(_answered, asker, message))


async def _answered(asker: Asker, asked: FormQuestion) -> dict[str, Any]:
    answer = await asker.form(
        asked.message, asked.schema, asked.seconds, server=asked.server, call_id=asked.call_id
    )
    return encode_fields(answer)


class AskerThroughFleet:
    """The ``Asker`` of one call in a child."""

    def __init__(self, call: int, questions: QuestionsToFleet) -> None:
        self._call = call
        self._questions = questions

    async def form(
        self,
        message: str,
        schema: Mapping[str, Any],
        seconds: float | None = None,
        *,
        server: str = "",
        call_id: str = "",
    ) -> Answered:
        """As ``Asker.form``."""
        question = partial(
            FormQuestion,
            self._call,
            message=message[:_MAX_MESSAGE],
            schema=dict(schema),
            seconds=seconds,
            server=server[:500],
            call_id=call_id[:500],
        )
        given = await self._questions.ask(lambda number: question(question=number))
        try:
            return decode(Answered, given)
        except Undecodable as error:
            raise Fault(FaultType.INTERNAL, f"the answer cannot be read: {error}") from None
