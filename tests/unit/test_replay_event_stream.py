"""A recorded answer is streamed in the form of its provider; put together again it is the same."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from pallas.executors.model_client.answer_document import answer_of
from pallas.recordings.event_stream import PIECE, events_of

TEXT = st.text(max_size=3 * PIECE)
SOME = st.text(min_size=1, max_size=2 * PIECE)
NAMES = st.text("abc_", min_size=1, max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(NAMES, each, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(NAMES, VALUES, max_size=3)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Documents with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def chats(draw: st.DrawFn) -> dict[str, Any]:
    message = draw(some(content=TEXT, reasoning_content=SOME, refusal=SOME))
    names = draw(st.lists(NAMES, max_size=3))
    if names:
        message["tool_calls"] = [
            {
                "index": index,
                "id": f"call_{index}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(draw(ARGUMENTS))},
            }
            for index, name in enumerate(names)
        ]
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**head, "choices": [choice], **draw(some(usage=st.just({"prompt_tokens": 3})))}


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    blocks = st.one_of(
        st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}),
        st.fixed_dictionaries({"type": st.just("thinking"), "thinking": TEXT, "signature": TEXT}),
        st.fixed_dictionaries(
            {"type": st.just("tool_use"), "id": st.just("t1"), "name": NAMES, "input": ARGUMENTS}
        ),
        st.fixed_dictionaries({"type": st.just("redacted_thinking"), "data": TEXT}),
    )
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": draw(st.lists(blocks, max_size=4)),
        "stop_reason": draw(st.sampled_from(["end_turn", "tool_use", None])),
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }


@st.composite
def responses(draw: st.DrawFn) -> dict[str, Any]:
    parts = st.fixed_dictionaries({"type": st.just("output_text"), "text": TEXT, "annotations": st.just([])})
    items = st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("message"), "id": st.just("m1"), "role": st.just("assistant"),
             "status": st.just("completed"), "content": st.lists(parts, max_size=2)}
        ),
        st.fixed_dictionaries(
            {"type": st.just("function_call"), "id": st.just("f1"), "call_id": st.just("c1"), "name": NAMES,
             "arguments": ARGUMENTS.map(json.dumps), "status": st.just("completed")}
        ),
        st.fixed_dictionaries({"type": st.just("reasoning"), "id": st.just("r1"), "summary": st.just([])}),
    )  # fmt: skip
    status = draw(st.sampled_from(["completed", "incomplete", "failed"]))
    return {"id": "r1", "object": "response", "status": status, "output": draw(st.lists(items, max_size=3))}


@st.composite
def candidates(draw: st.DrawFn) -> dict[str, Any]:
    thought = {"thought": True}
    calls = st.fixed_dictionaries({"functionCall": st.fixed_dictionaries({"name": NAMES, "args": ARGUMENTS})})
    parts: list[dict[str, Any]] = []
    for marks in draw(st.lists(st.sampled_from([thought, {}]), max_size=4)):
        last = parts[-1] if parts else {}
        if "text" in last and last.get("thought") == marks.get("thought"):
            parts.append(draw(calls))  # two texts in a row are one
        parts.append({**marks, "text": draw(TEXT), **draw(some(thoughtSignature=st.just("c2ln")))})
    candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
    return {"usageMetadata": {"promptTokenCount": 3}, "candidates": [candidate]}


@pytest.mark.slow
@pytest.mark.parametrize("documents", [chats(), messages(), responses(), candidates()])
def test_a_document_is_the_same_after_it_was_streamed(documents: st.SearchStrategy[dict[str, Any]]) -> None:
    @examples(200)
    @given(documents)
    def check(document: dict[str, Any]) -> None:
        events = events_of(document)
        assert json.loads(answer_of("".join(events).encode())) == document
        assert all(event.endswith("\n\n") and event.count("\n\n") == 1 for event in events)

    check()


def test_a_long_text_comes_in_pieces() -> None:
    message = {"role": "assistant", "content": "x" * 1_000}
    events = events_of({"object": "chat.completion", "choices": [{"index": 0, "message": message}]})
    assert len([each for each in events if '"content"' in each]) == -(-1_000 // PIECE)


def test_what_is_of_no_known_form_is_one_event() -> None:
    assert events_of({"error": {"message": "no"}}) == ('data: {"error": {"message": "no"}}\n\n',)
    assert events_of("busy") == ('data: "busy"\n\n',)
    assert events_of([{"type": "ping"}]) == ('event: ping\ndata: {"type": "ping"}\n\n',)
