"""Reads the events of one streamed answer, and corrects what a client of the dialect's own server would lose.

A reader gets each event as a JSON object, in order, and returns the events that a client is to get instead.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from .answer_document import answer_of, is_stream
from .answer_errors import AnswerError, CutAnswerError, UnusableAnswerError, error_in, no_answer, not_json
from .event_lines import EventLines, read_json

type Event = dict[str, Any]

_ENDED: Final = "its stream ended without {}"


class AnswerReader:
    """Reads one answer. Raises AnswerError for what is no answer."""

    KEY: ClassVar[str]
    """The key that an answer which is not streamed has, and an error has not."""
    END: ClassVar[str]
    """What ends a whole answer, in words."""

    def __init__(self) -> None:
        self.is_whole = False

    def name_of_text(self, data: bytes) -> str | None:
        """Return the name of an event that is a piece of a text and would be returned as it is by ``read``.

        The name is empty for an event without one; None stands for every other event. This is called first
        for each event: it must cost a fraction of reading and writing one.
        """
        return None

    def read(self, data: bytes) -> Sequence[Event]:
        """Return what a client is to get for an event with this data."""
        try:
            event = read_json(data)
        except ValueError:
            raise not_json(data) from None
        if (error := error_in(event, self.KEY)) is not None:
            raise error
        if event is None or event == []:  # it keeps the connection open
            return self._idle()
        if not isinstance(event, dict):
            raise UnusableAnswerError(f"it sent an event that is not a JSON object but {event!r:.80}")
        return self._corrected(event)

    def rest(self) -> Sequence[Event]:
        """Return what is missing at the end of the stream. Raises CutAnswerError if that is the answer."""
        if not self.is_whole:
            raise CutAnswerError(_ENDED.format(self.END))
        return ()

    def last(self, lines: EventLines) -> Sequence[Event]:
        """Return what a client is to get at the end of the body, whose events were those of ``lines``."""
        if lines.stray and not lines.has_events:
            return self.document(lines.stray, streamed=True)
        if lines.stray and not self.is_whole:
            raise self._broken_off(lines.stray)
        return self.rest()

    def _broken_off(self, stray: bytes) -> AnswerError:
        """Return the error for a stream that ends with text which is no event: often it says why."""
        for text in (stray, stray.splitlines()[-1]):
            with suppress(ValueError):
                if (error := error_in(read_json(text), self.KEY)) is not None:
                    return error
        why = no_answer(stray.decode(errors="replace"))
        return CutAnswerError(f"{_ENDED.format(self.END)}; behind its events {why}")

    def document(self, body: bytes, *, streamed: bool) -> Sequence[Event]:
        """Return a body that was sent at once, as the events of a stream if it was to be ``streamed``."""
        if not streamed and is_stream(body.lstrip()):
            body = answer_of(body).encode()
        try:
            document = read_json(body)
        except ValueError:
            document = _lines_of(body)
            if document is None:
                raise no_answer(body.decode(errors="replace")) from None
        if (error := error_in(document, self.KEY)) is not None:
            raise error
        if streamed and isinstance(document, list) and dicts(document):
            return [*(each for event in dicts(document) for each in self._corrected(event)), *self.rest()]
        if not isinstance(document, dict) or self.KEY not in document:
            raise UnusableAnswerError(f"it sent JSON that is not a model's answer: {document!r:.80}")
        return self._streamed(document) if streamed else (self._whole(document),)

    def _idle(self) -> Sequence[Event]:
        """What a client is to get for an event without anything in it."""
        return ()

    def _corrected(self, event: Event) -> Sequence[Event]:
        return (event,)

    def _whole(self, document: Event) -> Event:
        return document

    def _streamed(self, document: Event) -> Sequence[Event]:
        raise UnusableAnswerError(
            "it sent its answer at once, though a stream was asked for", "use a server that streams"
        )


class CallIds:
    """Gives each call of an answer an id of its own. A client keeps calls by their ids."""

    def __init__(self) -> None:
        self._taken = set[str]()

    def unique(self, wanted: str) -> str:
        """Return ``wanted``, or the first free name made of it."""
        found, number = wanted, 1
        while found in self._taken:
            number += 1
            found = f"{wanted}_{number}"
        self._taken.add(found)
        return found


def _lines_of(body: bytes) -> list[Any] | None:
    """Return the JSON values of a body with one in each line; None for any other body."""
    try:
        return [read_json(line) for line in body.splitlines() if line.strip()]
    except ValueError:
        return None


def dicts(values: Any) -> list[Event]:
    """Return the objects of a JSON array; none for any other value."""
    return [each for each in values if isinstance(each, dict)] if isinstance(values, Iterable) else []


def text_of(value: Any) -> str:
    """Return a value that is a text; empty for any other."""
    return value if isinstance(value, str) else ""


def index_in(event: Event, name: str, otherwise: int = 0) -> int:
    """Return a number of an event that is an index; ``otherwise`` for any other value."""
    index = event.get(name)
    return index if type(index) is int and index >= 0 else otherwise
