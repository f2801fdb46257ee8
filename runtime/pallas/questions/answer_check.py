"""Reads an answer to a form by the form's JSON Schema, within limits of time and size."""

from collections.abc import Mapping
from typing import Any, Final

from pallas.model import Fault, FaultType
from pallas.model.canonical_json import canonical
from pallas.model.questions import Question, QuestionAnswer
from pallas.safe_text import one_line

MAX_ANSWER: Final = 64_000
"""Most characters of an answer, as JSON."""
_STEPS: Final = 10_000
_SECONDS: Final = 0.2


def checked(question: Question, answer: QuestionAnswer) -> QuestionAnswer:
    """The answer as it counts: only an accepted form has content, only a call is allowed for ``always``.

    Raises Fault (PROTOCOL) if the content does not fit the form.
    """
    if question.kind == "approval":
        always = answer.always and answer.action == "accept" and question.may_be_always
        return QuestionAnswer(answer.action, always=always)
    if answer.action != "accept":
        return QuestionAnswer(answer.action)
    try:
        size = len(canonical(answer.content))
    except ValueError as error:
        raise _unfit(f"content is not a JSON object: {error}") from None
    if size > MAX_ANSWER:
        raise _unfit(f"content has {size} characters, at most are {MAX_ANSWER}")
    _check(answer.content, question.schema)
    return QuestionAnswer("accept", dict(answer.content))


def _check(content: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    # It imports a library that takes a quarter of a second.
    from pallas.bounds.schema import BoundedSchema

    if missing := [str(name) for name in schema.get("required", ()) if name not in content]:
        raise _unfit(f"content lacks {', '.join(one_line(name, 80) for name in missing[:8])}")
    try:
        found = next(BoundedSchema(dict(schema), steps=_STEPS, seconds=_SECONDS).errors(dict(content)), None)
    except Exception as error:  # a form that a server made: it may be of any kind
        raise _unfit(f"the form cannot be used ({type(error).__name__}); decline it") from None
    if found is not None:
        where = ".".join(str(each) for each in found.absolute_path)
        raise _unfit(f"content{f'.{one_line(where, 80)}' if where else ''}: {one_line(found.message, 200)}")


def _unfit(text: str) -> Fault:
    return Fault(FaultType.PROTOCOL, text, data={"key": "content"})
