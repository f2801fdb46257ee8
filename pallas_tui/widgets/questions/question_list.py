"""The list of questions: the open ones first, then the others, the newest first."""

from typing import Final

from pallas.model.questions import Question
from pallas.safe_text import one_line

from ...records.question_text import outcome_of, subject_of
from ...state import Tone
from ...text import Glyphs, Line, cropped, duration, fit, right
from ..pages import RecordList
from ..tasks.task_list import age
from ..tones import DIM, STRONG, STYLES, shape

_STATE: Final = 14
_AGENT: Final = 14
_AGE: Final = 6

EMPTY: Final = (
    "No questions yet.\n"
    "\n"
    "An agent asks before it calls a tool that agents.yaml lists under tools: ask:. A server or a handler "
    "asks to have a form filled in. The run waits here for an answer, whatever surface it came from.\n"
    "\n"
    "Escape goes back."
)


class QuestionList(RecordList[Question]):
    """One line a question: the time left or its answer, who asks, its age, what is asked."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(glyphs, id="question-list")

    def line_at(self, index: int, width: int) -> Line:
        record, glyphs = self.rows[index], self._glyphs
        tone = tone_of_question(record)
        is_open = record.state == "open"
        word = time_left(record, self._now) if is_open else outcome_of(record)
        subject, beside = subject_of(record), one_line(record.arguments, 300)
        return cropped(
            (
                shape(tone, glyphs),
                (f" {fit(word, _STATE, glyphs)} ", STYLES[tone] if is_open else DIM),
                (fit(record.agent, _AGENT, glyphs), STRONG),
                (f"{right(age(self._now - record.asked_at), _AGE)}  ", DIM),
                (subject, STRONG if is_open else ""),
                (f" {beside}" if beside else "", DIM),
            ),
            width,
        )


def tone_of_question(record: Question) -> Tone:
    """The tone of the state that a question is in."""
    if record.state == "open":
        return Tone.DEGRADED
    return Tone.OK if record.action == "accept" and record.state == "answered" else Tone.STOPPED


def time_left(record: Question, now: float) -> str:
    """``59:12 min left``; ``no time left`` at the deadline."""
    left = record.expires_at - now
    return f"{duration(left, running=True)} left" if left > 0 else "no time left"
