"""Questions of a call's runs as elicitations of its client, in the protocol versions with a handshake.

The client is asked while its call is open. Its answer may come to another worker process, which passes it on
to all that hold the session: so the id of the request is that of the question, and no two processes ever use
the same one.
"""

import asyncio
import logging
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Any, Final

from fastmcp.server.dependencies import FastMCPRequestContext

from pallas.deadlines import cancel_and_wait
from pallas.model import Event, Fault, FaultType, QuestionAnswered, QuestionAsked
from pallas.model.questions import Question
from pallas.questions.question_form import answer_of, elicitation_params

from .send_message_call import caller_of

if TYPE_CHECKING:
    from pallas.questions.questions import Questions

log = logging.getLogger(__name__)

MAX_ASKED: Final = 16
"""Questions of one call that its client is asked at a time; the others are answered in another way."""
_ATTEMPTS: Final = 3
"""How often a client is asked whose answers do not fit the form."""
_END_S: Final = 1.0
CHANNEL: Final = "_request_outbound"


class ElicitedQuestions:
    """Asks the client of a call each question of its runs, and gives its answers as those of the caller.

    Use as ``async with``: leaving it withdraws what is still asked. ``unable`` gets a question that the
    client cannot be asked; it stays open for other ways to answer it.
    """

    def __init__(
        self, questions: "Questions", context: FastMCPRequestContext, unable: Callable[[QuestionAsked], None]
    ) -> None:
        self._questions = questions
        self._unable = unable
        self._principal = caller_of(context)
        self._call = context.request_id
        # The one channel of the SDK that takes the id of a request (tests/contract/test_request_ids.py).
        self._channel: Any = getattr(context.session, CHANNEL)
        self._asked: dict[str, asyncio.Task[None]] = {}

    def hear(self, event: Event) -> None:
        """Take one event; returns at once."""
        if isinstance(event, QuestionAsked):
            if event.question in self._asked:
                return
            if len(self._asked) >= MAX_ASKED:
                self._unable(event)
                return
            task = asyncio.create_task(self._ask(event), name=f"ask {event.question}")
            self._asked[event.question] = task
        elif isinstance(event, QuestionAnswered) and (asked := self._asked.pop(event.question, None)):
            asked.cancel()

    async def __aenter__(self) -> "ElicitedQuestions":
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = set(self._asked.values())
        await cancel_and_wait(*tasks, seconds=_END_S)

    async def _ask(self, event: QuestionAsked) -> None:
        try:
            question = await self._questions.get(event.question, self._principal)
            wrong = ""
            for attempt in range(_ATTEMPTS):
                given = await self._elicit(question, wrong, attempt)
                if not (wrong := await self._answer(question, given)):
                    return
            self._unable(event)
        except Fault as fault:
            log.info("question %s is not asked: %s", event.question, fault.message)
        except Exception as error:  # the client's error, or the end of its connection
            log.info("question %s: its client cannot be asked: %s", event.question, type(error).__name__)
            self._unable(event)
        finally:
            self._asked.pop(event.question, None)

    async def _answer(self, question: Question, given: Any) -> str:
        """Give the client's answer; returns why it does not fit the form, for the client to ask again."""
        if (answer := answer_of(question, given)) is None:
            return "the answer is not valid in the protocol"
        try:
            await self._questions.answer(question.id, answer, self._principal)
        except Fault as fault:
            if fault.type is FaultType.PROTOCOL:  # content that does not fit
                return fault.message
            log.info("question %s: an answer was not taken: %s", question.id, fault.message)
        return ""

    async def _elicit(self, question: Question, wrong: str, attempt: int) -> Any:
        """Return what the client sends for a form; ``wrong`` is what was wrong with its last answer."""
        params = elicitation_params(question)
        if wrong:
            params["message"] = f"{wrong}\n{params['message']}"
        # The protocol lets a request have any id, and the SDK counts from 1 in each process.
        options = {
            "request_id": f"{question.id}.{attempt}.{self._call}",
            "timeout": max(0.1, question.expires_at - time()),
        }
        return await self._channel.send_raw_request("elicitation/create", params, options)
