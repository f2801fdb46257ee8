"""The messages before a recorded run, with the results of calls as the model got them.

A thread has the text of a result; a model may get its structured content instead.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from pallas.model import Message, Recording

from .first_difference import loaded

_IDS: Final = ("tool_call_id", "tool_use_id", "call_id")


def sent_history(recording: Recording) -> tuple[Message, ...]:
    """The history of a recording as the first request of its run had it."""
    steps = (each for each in recording.first.steps if each.step.kind == "model")
    first = next(steps, None)
    sent = dict(results_in(loaded(first.request))) if first is not None else {}
    return tuple(
        replace(
            message,
            answers=tuple(replace(each, text=sent.get(each.call_id, each.text)) for each in message.answers),
        )
        for message in recording.history
    )


def results_in(value: Any) -> Iterator[tuple[str, str]]:
    """The texts of the results of calls in a request of any provider, by the id of the call."""
    if isinstance(value, list):
        for each in value:
            yield from results_in(each)
    if not isinstance(value, dict):
        return
    if isinstance(response := value.get("functionResponse"), dict):
        yield str(response.get("id")), str((response.get("response") or {}).get("result", ""))
        return
    for name in _IDS:
        given = value.get("content", value.get("output"))
        if name in value and (text := _text(given)):
            yield str(value[name]), text
    for each in value.values():
        yield from results_in(each)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
