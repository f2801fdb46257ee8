"""A question as an MCP elicitation: the form that a client shows, and the answer in what it sends back.

An approval is a form of one choice. Only a choice that was offered allows a call: any other acceptance
refuses it.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pallas.model.codec import loads
from pallas.model.questions import Question, QuestionAnswer
from pallas.safe_text import sanitize
from pallas.toolbox.plain_json import json_text

DECISION: Final = "decision"
"""The one field of an approval's form."""
ONCE: Final = "allow once"
ALWAYS: Final = "always allow in this thread"
REFUSE: Final = "refuse"
_MAX_ARGUMENTS: Final = 4_000
_MAX_MESSAGE: Final = 8_000


def elicitation_params(question: Question) -> dict[str, Any]:
    """Return the parameters of ``elicitation/create`` for a question."""
    return {"mode": "form", "message": message_of(question), "requestedSchema": schema_of(question)}


def elicitation_request(question: Question) -> dict[str, Any]:
    """Return a question as it is in ``inputRequests``."""
    return {"method": "elicitation/create", "params": elicitation_params(question)}


def message_of(question: Question) -> str:
    """Return the words of a question: who wants what, for which call, through which agents."""
    if question.kind == "form":
        asker = _asker(question)
        return sanitize(f"{asker}: {question.message}" if asker else question.message, _MAX_MESSAGE)
    lines = [f"{_chain(question)} wants to call {question.tool}"]
    if question.arguments:
        # Long texts are shortened, and no argument is left out behind them.
        lines.append(json_text(loads(question.arguments), _MAX_ARGUMENTS))
    if question.message:
        lines.append(question.message)
    return sanitize("\n".join(lines), _MAX_MESSAGE)


def schema_of(question: Question) -> dict[str, Any]:
    """Return the JSON Schema of a question's form. Always is offered only in a thread."""
    if question.kind == "form":
        return dict(question.schema)
    choices = [ONCE, ALWAYS, REFUSE] if question.thread and question.may_be_always else [ONCE, REFUSE]
    decision = {"type": "string", "title": "Decision", "enum": choices}
    return {"type": "object", "properties": {DECISION: decision}, "required": [DECISION]}


def answer_in(
    question: Question, action: Literal["accept", "decline", "cancel"], content: Mapping[str, Any]
) -> QuestionAnswer:
    """Return the answer that a filled form means. An accepted form without an offered choice refuses."""
    if question.kind == "form" or action != "accept":
        return QuestionAnswer(action, content if action == "accept" else {})
    chosen = content.get(DECISION)
    offered = schema_of(question)["properties"][DECISION]["enum"]
    if chosen not in offered or chosen == REFUSE:
        return QuestionAnswer("decline")
    return QuestionAnswer("accept", always=chosen == ALWAYS)


def answer_of(question: Question, given: Any) -> QuestionAnswer | None:
    """Return the answer in a client's ``ElicitResult`` as JSON; None for something else."""
    action = given.get("action") if isinstance(given, Mapping) else None
    if action not in ("accept", "decline", "cancel"):
        return None
    content = given.get("content")
    return answer_in(question, action, content if isinstance(content, Mapping) else {})


def _asker(question: Question) -> str:
    """Who wants a form filled; empty for the agent that was called itself."""
    if question.server:
        return f"{question.server} ({_chain(question)})"
    return _chain(question) if question.path else ""


def _chain(question: Question) -> str:
    return " > ".join(question.agents)
