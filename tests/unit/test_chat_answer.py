"""Pieces of a chat completion become the calls that the server meant, however they are cut and labelled."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas.executors.model_client.answer_dialects import reader_of
from pallas.executors.model_client.answer_errors import CutAnswerError, ReportedError
from pallas.executors.model_client.chat_answer import ChatAnswer

TEXTS = st.lists(st.text(alphabet='{}[]"\\ax', max_size=6), min_size=1, max_size=4)


def event(delta: Any, finish: str | None = None) -> bytes:
    return json.dumps(
        {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    ).encode()


def joined(events: Sequence[bytes]) -> list[tuple[str, str, Any]]:
    """The calls as a client joins them by their index: id, name and arguments."""
    answer, found = ChatAnswer(), dict[int, tuple[str, str, str]]()
    read = [each for data in events for each in answer.read(data)]
    for each in [*read, *answer.rest()]:
        for piece in each["choices"][0]["delta"].get("tool_calls", ()):
            ident, name, text = found.get(piece["index"], ("", "", ""))
            function = piece["function"]
            found[piece["index"]] = (
                ident + piece.get("id", ""),
                name + function.get("name", ""),
                text + function["arguments"],
            )
    return [(ident, name, json.loads(text)) for ident, name, text in found.values()]


@given(TEXTS, st.data(), st.sampled_from(["id", "index", "both", "first"]), st.booleans())
def test_calls_cut_anywhere_are_joined(
    texts: list[str], data: st.DataObject, label: str, names: bool
) -> None:
    events = []
    for number, text in enumerate(texts):
        whole = json.dumps({"text": text})
        cut = data.draw(st.integers(1, len(whole) - 1))
        for part, is_first in ((whole[:cut], True), (whole[cut:], False)):
            piece: dict[str, Any] = {"function": {"arguments": part}}
            if is_first or names:
                piece["function"]["name"] = "say"
            if label in ("id", "both") or (label == "first" and is_first):
                piece["id"] = f"i{number}"
            if label != "id":
                piece["index"] = 0 if label == "first" else number
            events.append(event({"tool_calls": [piece]}))
    found = joined([*events, event({}, "stop")])
    assert [(name, arguments) for _, name, arguments in found] == [("say", {"text": text}) for text in texts]
    assert len({ident for ident, _, _ in found}) == len(texts)


@pytest.mark.parametrize("finish", ["stop", "function_call", "tool_calls", "length", "eos"])
def test_calls_count_whatever_the_reason_says(finish: str) -> None:
    call = {"index": 0, "id": "a", "function": {"name": "say", "arguments": "{}"}}
    answer = ChatAnswer()
    answer.read(event({"tool_calls": [call]}))
    *_, last = answer.read(event({}, finish))
    assert last["choices"][0]["finish_reason"] == "tool_calls"
    assert answer.rest() == ()


def test_ids_are_the_same_when_an_answer_is_read_again() -> None:
    events = [
        event({"tool_calls": [{"function": {"name": "say", "arguments": "{}"}}] * 2}),
        event({}, "stop"),
    ]
    assert joined(events) == joined(events)
    assert len({ident for ident, _, _ in joined(events)}) == 2


def test_an_answer_without_an_end_is_cut() -> None:
    answer = ChatAnswer()
    answer.read(event({"content": "all of it"}))
    with pytest.raises(CutAnswerError):
        answer.rest()


@pytest.mark.parametrize(
    ("error", "words", "status"),
    [
        ({"error": "odd"}, "odd", None),
        ({"error": {"message": "no", "code": "429"}}, "no", 429),
        ({"error": {"message": "no", "type": "overloaded_error"}}, "no", 529),
        ({"error": {"errors": [1]}}, '{"errors":[1]}', None),
        ({"error": True, "message": "no"}, "no", None),
        ({"object": "error", "message": "no", "code": 40303}, "no", None),
        ({"detail": [{"msg": "field required"}]}, "field required", None),
    ],
)
def test_an_error_is_in_the_words_of_the_server(error: Any, words: str, status: int | None) -> None:
    with pytest.raises(ReportedError) as raised:
        ChatAnswer().read(json.dumps(error).encode())
    assert (str(raised.value), raised.value.status_code) == (words, status)


PLAIN = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.text("ax", max_size=2))
DELTAS = st.one_of(
    PLAIN,
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("content", "role", "refusal", "reasoning_content", "tool_calls"), PLAIN)
    ),
)
CHOICE = st.fixed_dictionaries(
    {},
    optional={
        "index": PLAIN,
        "delta": DELTAS,
        "finish_reason": PLAIN,
        "error": PLAIN,
        "type": PLAIN,
        "message": PLAIN,
    },
)
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.one_of(PLAIN, st.lists(CHOICE, max_size=2)),
        "error": PLAIN,
        "type": st.sampled_from([None, "error", "content_block_delta", "response.output_text.delta"]),
        "object": st.sampled_from([None, "error", "chat.completion.chunk"]),
        "index": PLAIN,
        "message": PLAIN,
        "base_resp": st.one_of(PLAIN, st.just({"status_code": 1008, "status_msg": "insufficient balance"})),
        "response": st.one_of(PLAIN, st.just({"error": "it is full"})),
        "item": st.one_of(PLAIN, st.just({"type": "function_call", "call_id": "c", "arguments": {}})),
        "delta": PLAIN,
    },
)


@given(EVENTS, st.sampled_from(["/chat/completions", "/messages", "/responses", "/m:streamGenerateContent"]))
def test_only_what_would_not_be_changed_goes_by_as_it_was_sent(sent: dict[str, Any], path: str) -> None:
    reader = reader_of(path)
    assert reader is not None
    data = json.dumps(sent).encode()
    if reader.name_of_text(data) is not None:
        (read,) = reader.read(data)
        assert json.dumps(read) == json.dumps(sent)
        assert not reader.is_whole


@pytest.mark.parametrize(
    ("path", "before", "sent", "name"),
    [
        ("/chat/completions", (), {"choices": [{"index": 0, "delta": {"content": "a"}}]}, ""),
        (
            "/responses",
            ({"type": "response.content_part.added", "output_index": 0, "content_index": 0},),
            {"type": "response.output_text.delta", "delta": "a", "output_index": 0, "content_index": 0},
            "response.output_text.delta",
        ),
        (
            "/messages",
            ({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},),
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
            "content_block_delta",
        ),
    ],
)
def test_a_piece_of_a_text_goes_by_as_it_was_sent(
    path: str, before: tuple[Any, ...], sent: dict[str, Any], name: str
) -> None:
    reader = reader_of(path)
    assert reader is not None
    for each in before:
        reader.read(json.dumps(each).encode())
    assert reader.name_of_text(json.dumps(sent).encode()) == name
