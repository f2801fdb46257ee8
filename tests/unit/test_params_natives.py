"""Entries of a thread that were made elsewhere, as fast-agent takes them."""

from pallas.executors.fastagent.message_conversion import natives, to_message
from pallas.model import Message, ToolAnswer, ToolCall


def test_calls_and_answers_become_tool_calls_and_results() -> None:
    # AG-14
    thread = (
        Message("user", "go"),
        Message("assistant", "", calls=(ToolCall("c1", "echo__say", {"text": "a"}),)),
        Message("tool", "A\nno", answers=(ToolAnswer("c1", "A"), ToolAnswer("c2", "no", ok=False))),
        Message("assistant", "done"),
    )
    user, asked, answered, done = natives(thread)
    assert (user.first_text(), done.first_text()) == ("go", "done")
    assert asked.tool_calls is not None and asked.content == []
    assert asked.tool_calls["c1"].params.name == "echo__say"
    assert asked.tool_calls["c1"].params.arguments == {"text": "a"}
    assert answered.tool_results is not None and answered.role == "user"
    assert [result.is_error for result in answered.tool_results.values()] == [False, True]
    assert tuple(map(to_message, natives(thread))) == thread


def test_a_tool_entry_without_answers_is_still_said() -> None:
    (only,) = natives([Message("tool", "it rained")])
    assert only.first_text() == "it rained"
