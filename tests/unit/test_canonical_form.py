"""Two requests have the same canonical form if they ask the same."""

import json
from typing import Any

import pytest

from pallas.model.canonical_form import as_this_form, canonical_request
from pallas.model.dated_template import DatedTemplate, names_the_date
from pallas.telemetry.request_parts import PartCache

Request = dict[str, Any]


def chat(call: str, other: str = "", **arguments: Any) -> Request:
    function = {"name": "find", "arguments": json.dumps(arguments)}
    return {
        "messages": [
            {"role": "assistant", "tool_calls": [{"id": call, "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": other or call, "content": "found"},
        ]
    }


def anthropic(call: str, other: str = "", **arguments: Any) -> Request:
    return {
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": call, "input": arguments}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": other or call}]},
        ]
    }


def responses(call: str, other: str = "", **arguments: Any) -> Request:
    return {
        "input": [
            {"type": "reasoning", "id": f"r{call}", "summary": []},
            {"type": "function_call", "id": f"f{call}", "call_id": call, "arguments": json.dumps(arguments)},
            {"type": "function_call_output", "call_id": other or call, "output": "found"},
        ]
    }


def google(call: str, other: str = "", **arguments: Any) -> Request:
    return {
        "contents": [
            {"role": "model", "parts": [{"functionCall": {"id": call, "name": "find", "args": arguments}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": other or call, "response": {}}}]},
        ]
    }


DIALECTS = pytest.mark.parametrize("dialect", [chat, anthropic, responses, google])


def digests(*requests: Request) -> list[str]:
    return [PartCache().split(json.dumps(each).encode(), "a thread").digest for each in requests]


def are_same(before: Request, after: Request) -> bool:
    """Whether both have one form; digests say the same."""
    first, second = digests(before, after)
    assert as_this_form(first) == first
    assert as_this_form(f"2:{first.partition(':')[2]}") == first
    assert not as_this_form(first.partition(":")[2])
    forms = canonical_request(before), canonical_request(after)
    is_same: bool = forms[0] == forms[1]
    assert (first == second) is is_same
    return is_same


@DIALECTS
def test_ids_of_calls_are_numbered_and_what_they_pair_counts(dialect: Any) -> None:
    assert are_same(dialect("a"), dialect("b"))
    assert not are_same(dialect("a"), dialect("a", "b"))


@DIALECTS
def test_an_argument_named_id_counts(dialect: Any) -> None:
    for name in ("id", "call_id", "tool_call_id", "tool_use_id"):
        assert are_same(dialect("a", **{name: 1}), dialect("b", **{name: 1}))
        assert not are_same(dialect("a", **{name: 1}), dialect("a", **{name: 2}))
        assert not are_same(dialect("a", **{name: 1}), dialect("a", **{name: "1"}))
        assert not are_same(dialect("a", **{name: 1}), dialect("a"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"tools": [{"parameters": {"properties": {"id": {"type": "string"}}}}]},
         {"tools": [{"parameters": {"properties": {"id": {"type": "integer"}}}}]}),
        ({"tools": [{"input_schema": {"required": ["id"]}}]},
         {"tools": [{"input_schema": {"required": []}}]}),
        ({"temperature": 0.5}, {"temperature": 0.7}),
        ({"id": "a"}, {"id": "b"}),
        ({"response_format": {"id": 1}}, {"response_format": {"id": 2}}),
        ({"tools": [{"name": "a"}, {"name": "b"}]}, {"tools": [{"name": "b"}, {"name": "a"}]}),
        ({"messages": [{"role": "user", "content": "on 2026-12-24"}]},
         {"messages": [{"role": "user", "content": "on 2026-12-25"}]}),
        ({"messages": [{"role": "user", "content": " a"}]}, {"messages": [{"role": "user", "content": "a"}]}),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "a"}}]}]},
         {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "b"}}]}]}),
        (chat("a", n=12345678901234567890123), chat("a", n=12345678901234567890124)),
        ({"seed": 12345678901234567890123}, {"seed": 12345678901234567890124}),
        ({"strict": True}, {"strict": 1}),
    ],
)  # fmt: skip
def test_everything_else_counts(before: Request, after: Request) -> None:
    first, second = digests(before, after)
    assert first != second


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"stream": True, "user": "a", "metadata": {"run": 1}, "model": "m"}, {"model": "m"}),
        ({"prompt_cache_key": "a", "safety_identifier": "b"}, {"prompt_cache_key": "c"}),
        ({"temperature": 1.0, "n": 1}, {"n": 1, "temperature": 1}),
        ({"previous_response_id": "a"}, {"previous_response_id": "b"}),
        ({"tools": [{"name": "a", "description": "b"}]}, {"tools": [{"description": "b", "name": "a"}]}),
    ],
)
def test_what_says_nothing_of_the_question_does_not_count(before: Request, after: Request) -> None:
    assert are_same(before, after)


def test_blanks_and_the_order_of_keys_in_a_text_of_arguments_do_not_count() -> None:
    before, after = chat("a"), chat("a")
    for request, text in ((before, '{"a":1,"b":2}'), (after, '{ "b": 2, "a": 1.0 }')):
        request["messages"][0]["tool_calls"][0]["function"]["arguments"] = text
    assert are_same(before, after)


def test_ids_are_numbered_along_a_conversation_however_it_is_split() -> None:
    whole: Request = {"messages": [each for number in "abc" for each in chat(number)["messages"]]}
    again: Request = {"messages": [each for number in "xyz" for each in chat(number)["messages"]]}
    swapped = json.loads(json.dumps(again))
    swapped["messages"][1]["tool_call_id"], swapped["messages"][3]["tool_call_id"] = "y", "x"
    cache = PartCache()
    for count in range(1, len(whole["messages"]) + 1):
        part = {"messages": whole["messages"][:count]}
        grown = cache.split(json.dumps(part).encode(), "a thread").digest
        assert [grown] == digests(part)
    assert are_same(whole, again)
    assert not are_same(whole, swapped)


TEMPLATE = "{{serverInstructions}}\nYou plan.\n{{agentSkills}}\nThe date is {{currentDate}}.\n{{env}}"


def filled(date: str, *, servers: str = "Use it.", skills: str = "", more: str = "") -> str:
    return f"{servers}\nYou plan.\n{skills}\nThe date is {date}.\nhere{more}"


def test_the_date_of_a_template_is_found_by_the_words_beside_it() -> None:
    template = DatedTemplate(TEMPLATE)
    assert template.undated(filled("28 November 2026")) == filled("{{currentDate}}")
    assert template.undated(filled("28 November 2026", more="\n28 November 2026")) == filled(
        "{{currentDate}}", more="\n28 November 2026"
    )
    literal = "The fair is on 01 May 2027."
    assert template.undated(filled("28 November 2026", servers=literal)) == filled(
        "{{currentDate}}", servers=literal
    )
    assert template.undated(filled("tomorrow")) is None
    assert template.undated("You are plain.") is None


def test_a_date_without_words_beside_it_is_not_taken_for_that_of_the_template() -> None:
    assert DatedTemplate("{{env}}{{currentDate}}{{env}}").undated("a 28 November 2026 b") in (
        None, "a 28 November 2026 b",
    )  # fmt: skip
    assert DatedTemplate("{{currentDate}}").undated("28 November 2026") == "{{currentDate}}"


def test_only_a_placeholder_names_the_date() -> None:
    assert names_the_date("It is {{currentDate}}")
    assert not names_the_date(r"It is \{{currentDate}}")
    assert not names_the_date("It is {{env}} and 28 November 2026")
    escaped = DatedTemplate(r"\{{a}} on {{currentDate}}")
    assert escaped.undated("{{a}} on 28 November 2026") == "{{a}} on {{currentDate}}"
