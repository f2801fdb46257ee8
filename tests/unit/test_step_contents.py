"""What is new in a request is found in the documents of each provider, however it repeats what was said."""

import json
from typing import Any

import pytest

from pallas.model import RecordedRun, Step, StepDetail
from pallas.recordings.step_contents import ContentsReader, StepContents

Request = dict[str, Any]


def contents(*requests: Request, answer: str = "") -> list[StepContents]:
    """The contents of a run with these requests to a model."""
    steps = tuple(
        StepDetail(Step("r", number, "model", "m", 0.0), json.dumps(request), answer)
        for number, request in enumerate(requests, 1)
    )
    return ContentsReader().read(RecordedRun("r", "a", "look", steps=steps))


def new(found: StepContents) -> list[tuple[str, str, bool]]:
    return [(each.role, each.text, each.is_repeated) for each in found.messages]


def chat(number: int) -> tuple[Request, Request]:
    first = {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "look"}],
        "n": 1,
    }
    call = {"id": f"c{number}", "function": {"name": "echo", "arguments": '{"a":1}'}}
    more = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": "found"},
    ]
    return first, {**first, "messages": [*first["messages"], *more]}  # type: ignore[misc]


def anthropic(number: int) -> tuple[Request, Request]:
    text = {"type": "text", "text": "look"}
    cached = {**text, "cache_control": {"type": "ephemeral"}}
    call = {"type": "tool_use", "id": f"c{number}", "name": "echo", "input": '{"a":1}'}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "found"}
    head = {"system": "Be brief.", "max_tokens": 1}
    return (
        {"messages": [{"role": "user", "content": [cached]}], **head},
        {
            "messages": [
                {"role": "user", "content": [text]},  # the mark of the cache has moved on
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result | {"cache_control": {"type": "ephemeral"}}]},
            ],
            **head,
        },
    )


def responses(number: int) -> tuple[Request, Request]:
    said = {"role": "user", "content": [{"type": "input_text", "text": "look"}]}
    call = {
        "type": "function_call",
        "id": f"i{number}",
        "call_id": f"c{number}",
        "name": "echo",
        "arguments": '{"a":1}',
    }
    result = {"type": "function_call_output", "call_id": f"c{number}", "output": "found"}
    return {"instructions": "Be brief.", "input": [said]}, {
        "instructions": "Be brief.",
        "input": [said, call, result],
    }


def google(number: int) -> tuple[Request, Request]:
    said = {"role": "user", "parts": [{"text": "look"}]}
    call = {
        "functionCall": {"id": f"c{number}", "name": "echo", "args": '{"a":1}'},
        "thoughtSignature": f"s{number}",
    }
    result = {"functionResponse": {"id": f"c{number}", "name": "echo", "response": "found"}}
    head = {"systemInstruction": {"parts": [{"text": "Be brief."}]}}
    return {"contents": [said], **head}, {
        "contents": [said, {"role": "model", "parts": [call]}, {"role": "user", "parts": [result]}],
        **head,
    }


@pytest.mark.parametrize("dialect", [chat, anthropic, responses, google])
def test_a_step_adds_to_the_request_before_it(dialect: Any) -> None:
    first, second = contents(*dialect(1))
    assert new(first) == [("user", "look", False)]
    assert [(text.strip('"'), is_repeated) for _, text, is_repeated in new(second)] == [
        ('call echo {"a":1}', True), ("found", True),
    ]  # fmt: skip
    assert (first.opens, second.opens) == (True, False)
    assert first.frame.instructions == second.frame.instructions == "Be brief."
    assert first.frame.digest == second.frame.digest
    # Ids do not count.
    _, again = contents(*dialect(2))
    assert [each.meaning for each in again.messages] == [each.meaning for each in second.messages]


def test_an_id_in_the_arguments_of_a_tool_counts() -> None:
    def asked(book: int) -> Request:
        call = {"type": "tool_use", "id": "c", "name": "find", "input": {"id": book}}
        return {"messages": [{"role": "assistant", "content": [call]}]}

    ((one,), (other,)) = (each.messages for each in contents(asked(1)) + contents(asked(2)))
    assert one.meaning != other.meaning


def test_after_a_summary_only_the_summary_is_new() -> None:
    said = [{"role": "user", "content": f"message {number}"} for number in range(6)]
    summary = {"role": "user", "content": "Summary: all was said."}
    *_, last = contents(
        {"messages": said[:4], "tools": []}, {"messages": said[:5]}, {"messages": [summary, *said[3:]]}
    )
    assert new(last) == [("user", "Summary: all was said.", False), ("user", "message 5", False)]
    assert not last.opens


def test_conversations_in_turn_are_told_apart() -> None:
    def request(name: str, turns: int) -> Request:
        said = [
            {"role": ("user", "assistant")[turn % 2], "content": f"{name} {turn}"} for turn in range(turns)
        ]
        return {"messages": [{"role": "system", "content": name}, *said]}

    order = [("a", 1), ("b", 1), ("a", 3), ("b", 3), ("b", 5), ("a", 5)]
    found = contents(*(request(*each) for each in order))
    assert [[text for _, text, _ in new(each)] for each in found] == [
        ["a 0"], ["b 0"], ["a 1", "a 2"], ["b 1", "b 2"], ["b 3", "b 4"], ["a 3", "a 4"],
    ]  # fmt: skip
    assert [each.frame.instructions for each in found] == [name for name, _ in order]


def test_the_same_words_again_are_new() -> None:
    said = [{"role": "user", "content": "go on"}]
    first, second = contents({"messages": said}, {"messages": said * 2})
    assert new(first) == new(second) == [("user", "go on", False)]


def test_tools_and_parameters_are_those_that_matter() -> None:
    tool = {
        "type": "function",
        "function": {"name": "find", "parameters": {"properties": {"id": {"type": "integer"}}}},
    }
    plain = {"messages": [], "model": "m", "tools": [tool], "temperature": 1}
    volatile = {"stream": True, "stream_options": {}, "user": "u", "metadata": {}, "prompt_cache_key": "k"}
    one, same, other = contents(
        plain, {**volatile, **plain}, {**plain, "tools": [tool, {"type": "web_search"}], "temperature": 0}
    )
    assert one.frame.digest == same.frame.digest != other.frame.digest
    assert (list(other.frame.tools), other.frame.params) == (["find", "web_search"], {"temperature": "0"})
    assert '"id": {"type": "integer"}' in one.frame.tools["find"]


def test_text_that_is_not_ascii_is_cut_at_the_right_place() -> None:
    said = [{"role": "user", "content": f"größer 灯 \U0001f600 {number}"} for number in range(4)]
    requests = [
        json.dumps({"é": "ü", "messages": said[:count], "x": "灯"}, ensure_ascii=False) for count in (1, 2, 4)
    ]
    steps = tuple(
        StepDetail(Step("r", number, "model", "m", 0.0), request)
        for number, request in enumerate(requests, 1)
    )
    reader = ContentsReader()
    found = reader.read(RecordedRun("r", "a", "look", steps=steps))
    assert [len(each.messages) for each in found] == [1, 1, 2]
    assert [each.text for each in found[2].messages] == [said[2]["content"], said[3]["content"]]
    assert {each.frame.digest for each in found} == {found[0].frame.digest}
    assert reader.parsed < sum(map(len, requests))
