"""The messages before a run as a recording has them: without the secrets of their time.

A thread holds what was said as it was: a result of a tool may contain the token of its caller, which nobody
knows any more. What was recorded then has no secrets: the questions and answers of runs, and the requests to
models. So a text is taken from there, and what is not found there is masked as a whole.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pallas.model import Message, RunTexts
from pallas.model.codec import Undecodable, loads
from pallas.model.long_strings import shortened
from pallas.model.redaction import MASK, redact_text
from pallas.safe_text import sanitize, without_controls


class MaskedTexts:
    """The texts in JSON documents whose secrets were masked when they were recorded."""

    def __init__(self, documents: Iterable[str]) -> None:
        texts = [without_controls(text) for each in documents for text in _texts(_loaded(each))]
        self._all = "\n".join(texts)
        self._masked = [each for each in texts if MASK in each]

    def text(self, text: str) -> str:
        """A text as it was recorded: also masked in part, or shortened. The mask if it was not."""
        plain = clean(text)
        # An older release recorded them as they are shown.
        if plain in self._all or sanitize(plain) in self._all:
            return plain
        if (short := shortened(text)) != text and short in self._all:
            return short
        return next((each for each in self._masked if _is_masked(each, plain)), MASK if plain else "")

    def value(self, value: Any) -> Any:
        """A JSON value whose texts are as they were recorded."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if isinstance(value, Mapping):
            return {clean(name): self.value(each) for name, each in value.items()}
        return value


def recorded_history(
    before: Sequence[tuple[str, Message]], known: Mapping[str, RunTexts], sent: MaskedTexts
) -> list[Message]:
    """The messages before a run, without native form and without secrets.

    ``before`` are they with the ids of their runs, ``known`` the questions and answers of these runs, and
    ``sent`` is what models were sent of them.
    """
    runs = ["", *(run for run, _ in before), ""]
    found: list[Message] = []
    for (run, message), earlier, later in zip(before, runs[:-2], runs[2:], strict=True):
        answers = tuple(replace(each, text=sent.text(each.text)) for each in message.answers)
        if answers:
            text = "\n".join(each.text for each in answers if each.text)
        elif message.role == "user" and run != earlier:
            text = _said(message.text, known.get(run), "question", sent)
        elif message.role == "assistant" and run != later:
            text = _said(message.text, known.get(run), "answer", sent)
        else:
            text = sent.text(message.text)
        calls = tuple(replace(each, arguments=sent.value(each.arguments)) for each in message.calls)
        found.append(replace(message, native=None, text=text, calls=calls, answers=answers))
    return found


def clean(text: str) -> str:
    """A text as data, without the secrets that are known now."""
    return without_controls(redact_text(text))


def _said(text: str, known: RunTexts | None, part: Literal["question", "answer"], sent: MaskedTexts) -> str:
    """The question or the answer of a run, whose recorded texts are ``known``."""
    plain = clean(text)
    if known is not None and known.is_as_said:
        return plain
    masked = without_controls(getattr(known, part)) if known is not None else ""
    return masked if masked and _is_masked(masked, plain) else sent.text(text)


def _is_masked(masked: str, text: str) -> bool:
    """Whether the first is the second with secrets masked."""
    first, *middle = masked.split(MASK)
    if not middle:
        return masked == text
    last = middle.pop()
    if not text.startswith(first) or not text[len(first) :].endswith(last):
        return False
    at = len(first)
    for piece in middle:
        found = text.find(piece, at, len(text) - len(last))
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        if value.startswith("{") and isinstance(arguments := _loaded(value), dict):
            yield from _texts(arguments)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))


def _loaded(text: str) -> Any:
    try:
        return loads(text)
    except Undecodable:
        return text
