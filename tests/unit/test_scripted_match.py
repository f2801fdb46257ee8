"""Which rule answers, and what a template knows of the conversation."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.scripted import script

from pallas.scripted.openai_wire import answer_of
from pallas.scripted.scripted_conversation import BadRequest, read_conversation
from pallas.scripted.scripted_server import find_rule
from pallas.scripted.template import Facts


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def assistant(*calls: tuple[str, str], text: str | None = None) -> dict[str, Any]:
    made = [
        {"id": call_id, "type": "function", "function": {"name": tool, "arguments": "{}"}}
        for call_id, tool in calls
    ]
    return {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def picture(size: tuple[int, int] = (1, 1), kind: str = "PNG") -> dict[str, Any]:
    data = io.BytesIO()
    Image.new("RGB", size).save(data, kind)
    url = f"data:image/{kind.lower()};base64,{base64.b64encode(data.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def answer(folder: Path, rules: str, *messages: dict[str, Any], model: str = "scripted") -> str:
    """The words that the rules answer to the messages; tool calls follow as lines of JSON."""
    loaded = script(folder, rules)
    seen = read_conversation({"model": model, "messages": list(messages)})
    rule, match = find_rule(loaded, seen)
    made = answer_of(rule, Facts(seen, match))
    return "\n".join([made.text, *(f"{call.tool} {call.arguments}" for call in made.calls)])


FIRST_WINS = """
rules:
  - {when: {text: LAMP}, say: lamp}
  - {when: {last: user}, say: user}
  - {say: rest}
"""


def test_the_first_rule_that_fits_answers(tmp_path: Path) -> None:
    assert answer(tmp_path, FIRST_WINS, user("a desk lamp?")) == "lamp"
    assert answer(tmp_path, FIRST_WINS, user("a chair?")) == "user"
    assert answer(tmp_path, FIRST_WINS, user("x"), assistant(("1", "t")), result("1", "y")) == "rest"


def test_text_and_regex_look_at_the_tool_result_when_that_is_last(tmp_path: Path) -> None:
    rules = """
    rules:
      - {when: {text: brass}, say: brass}
      - {when: {regex: '(?P<left>\\d+) LEFT'}, say: "{{ match.left }} of {{ user }}"}
    """
    asked = (user("brass lamps"), assistant(("1", "stock")))
    assert answer(tmp_path, rules, *asked, result("1", "7 left")) == "7 of brass lamps"
    assert answer(tmp_path, rules, user("brass lamps")) == "brass"


@pytest.mark.parametrize(
    ("when", "fits"),
    [
        ("{last: user}", False),
        ("{last: tool}", True),
        ("{tool: docs__search}", True),
        ("{tool: docs__read}", True),
        ("{tool: docs__write}", False),
        ("{tool: docs}", False),
        ("{user: INVOICE}", True),
        ("{text: invoice}", False),
        ("{text: second page}", True),
        ("{system: YOU ARE research}", True),
        ("{system: catalogue}", False),
        ("{model: scripted}", True),
        ("{model: script}", False),
        ("{images: false}", True),
        ("{images: true}", False),
        ("{regex: '^first'}", True),
        ("{last: tool, user: lamp}", False),
    ],
)
def test_every_condition_of_a_rule_must_hold(tmp_path: Path, when: str, fits: bool) -> None:
    said = answer(
        tmp_path,
        f"rules: [{{when: {when}, say: fits}}, {{say: other}}]",
        system("You are research."),
        user("which invoice"),
        assistant(("1", "docs__search"), ("2", "docs__read")),
        result("1", "first page"),
        result("2", "second page"),
    )
    assert (said == "fits") is fits


def test_parallel_results_are_joined_and_told_apart_by_tool(tmp_path: Path) -> None:
    said = answer(
        tmp_path,
        'rules: [{say: "{{ results.a }}+{{ results.b }}+{{ results.c }}={{ result }}"}]',
        user("x"),
        assistant(("1", "a"), ("2", "b")),
        result("2", "two"),
        result("1", "one"),
    )
    assert said == "one+two+=two\n\none"


def test_results_of_an_earlier_turn_are_over(tmp_path: Path) -> None:
    said = answer(
        tmp_path,
        'rules: [{when: {last: tool}, say: tool}, {say: "{{ result }}|{{ last }}|{{ turns }}|{{ first }}"}]',
        user("one"),
        assistant(("1", "a")),
        result("1", "old"),
        assistant(text="done"),
        user("two"),
    )
    assert said == "|two|2|one"


def test_a_picture_among_tool_results_is_no_message_of_the_user(tmp_path: Path) -> None:
    said = answer(
        tmp_path,
        'rules: [{when: {tool: look}, say: "{{ result }} {{ user }} {{ turns }} {{ image.width }}"}]',
        user("look"),
        assistant(("1", "look")),
        result("1", "seen"),
        {"role": "user", "content": [picture((40, 30))]},
    )
    assert said == "seen look 1 40"


def test_facts_of_the_last_picture_come_from_its_own_header(tmp_path: Path) -> None:
    rules = """
    rules:
      - when: {images: true}
        say: "{{ image.count }} {{ image.kind }} {{ image.width }}x{{ image.height }} {{ image.bytes }}"
      - {say: "{{ image.count }} {{ image.kind }} {{ image.width }}"}
    """
    parts = [{"type": "text", "text": "see"}, picture((3, 4)), picture((320, 200), "JPEG")]
    said = answer(tmp_path, rules, {"role": "user", "content": parts})
    size = len(base64.b64decode(parts[2]["image_url"]["url"].partition(",")[2]))
    assert said == f"2 JPEG 320x200 {size}"
    assert answer(tmp_path, rules, user("none")) == "0 unknown 0"


def test_arguments_are_filled_in_at_any_depth_and_keep_their_types(tmp_path: Path) -> None:
    rules = """
    rules:
      - when: {regex: '(?P<what>\\w+) under (?P<price>[\\d.,]+)'}
        call:
          - tool: shop__find
            arguments:
              text: "{{ match.what }}"
              max_price: "{{ match.price | number }}"
              options: {tags: ["{{ user }}", 1, 2.5, true, null], turn: "{{ turns }}"}
              query: '{"q": {{ last | json }}}'
    """
    said = answer(tmp_path, rules, user('lamps under 1,050 "now"'))
    tool, _, arguments = said.strip().partition(" ")
    assert tool == "shop__find"
    assert json.loads(arguments) == {
        "text": "lamps",
        "max_price": 1050,
        "options": {"tags": ['lamps under 1,050 "now"', 1, 2.5, True, None], "turn": 1},
        "query": '{"q": "lamps under 1,050 \\"now\\""}',
    }


def test_a_number_that_is_none_stays_text(tmp_path: Path) -> None:
    rules = "rules: [{call: [{tool: t, arguments: {a: '{{ last | number }}'}}]}]"
    for text in ("about ten", "nan", "inf", "9" * 5_000):
        assert json.loads(answer(tmp_path, rules, user(text)).split(" ", 1)[1]) == {"a": text}
    assert json.loads(answer(tmp_path, rules, user(" 2.5 ")).split(" ", 1)[1]) == {"a": 2.5}


def test_what_no_rule_answers_is_echoed_with_the_file_to_edit(tmp_path: Path) -> None:
    said = answer(tmp_path, "rules: [{when: {text: hello}, say: hi}]", user("two\nlines"))
    assert "model.yaml" in said
    assert said.endswith("> two\n> lines")


def test_braces_of_a_user_are_never_taken_for_a_template(tmp_path: Path) -> None:
    said = answer(tmp_path, "rules: [{say: '{{ last }}'}]", user("{{ first }} {{ system }}"))
    assert said == "{{ first }} {{ system }}"


def test_call_ids_go_on_from_those_before(tmp_path: Path) -> None:
    loaded = script(tmp_path, "rules: [{call: [{tool: a}, {tool: b}]}]")
    seen = read_conversation({"messages": [user("x"), assistant(("call_1", "a")), result("call_1", "y")]})
    rule, match = find_rule(loaded, seen)
    assert [call.id for call in answer_of(rule, Facts(seen, match)).calls] == ["call_2", "call_3"]


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"messages": []},
        {"messages": "hello"},
        {"messages": ["hello"]},
        {"messages": [{"role": "usr", "content": "x"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": ["x"]}]},
    ],
)
def test_a_request_that_is_none_is_refused_with_its_place(body: Any) -> None:
    with pytest.raises(BadRequest, match=r"body|messages"):
        read_conversation(body)
