"""Requests of a replay are answered by equal recorded ones; a miss names the first field that differs."""

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from pallas.model import RecordedRun, Recording, Step, StepAttempt, StepDetail, StepKind
from pallas.model.dated_template import DatedTemplate
from pallas.model.long_strings import shortened
from pallas.recordings.first_difference import differences, loaded
from pallas.recordings.loose_match import original, same, stand_in
from pallas.recordings.recorded_steps import Miss, RecordedSteps, StepRequest
from pallas.recordings.recorded_tools import RecordedTools
from pallas.recordings.replay_check import first_replay_difference, first_unused
from pallas.telemetry.request_parts import PartCache

ASKED: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "You are plain."},
        {"role": "user", "content": "lamps"},
    ],
    "tools": [{"type": "function", "function": {"name": "shelf__find", "description": "Find."}}],
    "temperature": 0.5,
}


def digest_of(kind: StepKind, request: Mapping[str, Any]) -> str:
    if kind == "model":
        return PartCache().split(json.dumps(request).encode(), "a run").digest
    arguments = json.dumps(request["arguments"]).encode()
    return PartCache().split_call(request["name"], arguments).digest


def step(
    request: Mapping[str, Any], answer: str, number: int = 1, kind: StepKind = "model", **more: Any
) -> StepDetail:
    name = request["name"] if kind == "tool" else "m"
    value = Step("r", number, kind, name, 0.0, "done", digest=digest_of(kind, request), seconds=1.0)
    response = {"content": [{"text": answer}]}
    return StepDetail(replace(value, **more), json.dumps(request), json.dumps(response))


def run(*steps: StepDetail, name: str = "r", agent: str = "plain", question: str = "?") -> RecordedRun:
    return RecordedRun(name, agent, question, steps=steps)


def steps_of(*runs: RecordedRun) -> RecordedSteps:
    return RecordedSteps(Recording("p", runs))


def asking(
    request: Mapping[str, Any],
    asker: int = 1,
    run_id: str = "now",
    agent: str = "plain",
    kind: StepKind = "model",
    templates: tuple[DatedTemplate, ...] = (),
) -> StepRequest:
    name = request["name"] if kind == "tool" else "m"
    text = json.dumps(request)
    return StepRequest(run_id, agent, kind, name, digest_of(kind, request), text, (run_id, asker), templates)


def said(found: StepDetail | Miss) -> str:
    assert isinstance(found, StepDetail), str(found)
    return str(loaded(found.response)["content"][0]["text"])


def changed(**fields: Any) -> dict[str, Any]:
    return json.loads(json.dumps({**ASKED, **fields}))


def test_equal_requests_get_the_recorded_answers_in_their_order_and_no_more() -> None:
    steps = steps_of(run(step(ASKED, "one"), step(ASKED, "two", 2)))
    assert [said(steps.answer(asking(ASKED, asker))) for asker in (1, 2)] == ["one", "two"]
    miss = steps.answer(asking(ASKED, 3))
    assert "was made only 2 times in the recording, the last time in step 2 of plain" in str(miss)


def test_a_step_that_asks_again_gets_its_answer_again() -> None:
    steps = steps_of(run(step(ASKED, "one"), step(ASKED, "two", 2)))
    assert [said(steps.answer(asking(ASKED, asker))) for asker in (1, 1, 2)] == ["one", "one", "two"]


def test_what_always_differs_does_not_count() -> None:
    steps = steps_of(run(step(changed(stream=True, user="a"), "one")))
    assert said(steps.answer(asking(changed(stream=False, user="b")))) == "one"


def test_a_run_goes_on_with_the_recorded_run_that_answered_it_first() -> None:
    other = changed(model="m2")
    first = run(step(ASKED, "one"), step(other, "one again", 2), name="a")
    second = run(step(ASKED, "two"), step(other, "two again", 2), name="b")
    steps = steps_of(first, second)
    assert said(steps.answer(asking(ASKED, 1, "x"))) == "one"
    assert said(steps.answer(asking(ASKED, 1, "y"))) == "two"
    assert said(steps.answer(asking(other, 2, "y"))) == "two again"
    assert said(steps.answer(asking(other, 2, "x"))) == "one again"


def test_another_agents_run_answers_only_if_no_own_one_is_left() -> None:
    steps = steps_of(run(step(ASKED, "theirs"), name="a", agent="other"), run(step(ASKED, "own"), name="b"))
    assert [said(steps.answer(asking(ASKED, asker, f"x{asker}"))) for asker in (1, 2)] == ["own", "theirs"]


@pytest.mark.parametrize(
    ("fields", "path", "after", "before"),
    [
        (
            {"messages": [{"role": "system", "content": "You are kind."}, ASKED["messages"][1]]},
            "messages[0].content",
            '"You are kind."',
            '"You are plain."',
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "shelf__seek", "description": "Find."}}]},
            "tools[0].function.name",
            '"shelf__seek"',
            '"shelf__find"',
        ),
        ({"temperature": 0.7}, "temperature", "0.7", "0.5"),
        (
            {"messages": ASKED["messages"][:1]},
            "messages[1]",
            "nothing",
            '{"role": "user", "content": "lamps"}',
        ),
        ({"top_p": 1}, "top_p", "1", "nothing"),
    ],
)  # fmt: skip
def test_a_miss_names_the_first_field_that_differs_with_both_values(
    fields: dict[str, Any], path: str, after: str, before: str
) -> None:
    far = changed(messages=[{"role": "user", "content": "something else"}], tools=[])
    miss = steps_of(run(step(far, "far"), step(ASKED, "near", 2))).answer(asking(changed(**fields)))
    assert str(miss) == (
        "the model request m of plain is not in the recording: "
        f"{path} is {after}, in step 2 of plain it was {before}"
    )


def test_of_two_long_texts_the_place_is_shown_where_they_part() -> None:
    before, after = ("x " * 500 + each + " y" * 500 for each in ("lamp", "cat"))
    (found,) = differences({"text": before}, {"text": after}, same)
    assert found.before.startswith('…"x x x x x x x x x x lamp y')
    assert found.after.startswith('…"x x x x x x x x x x cat y')
    assert len(found.before) <= 100


def test_a_call_is_compared_with_calls_of_the_same_tool() -> None:
    calls = [{"name": name, "arguments": {"id": 1}} for name in ("shelf__find", "shelf__look")]
    steps = steps_of(run(*(step(each, "x", number, "tool") for number, each in enumerate(calls, 1))))
    miss = steps.answer(asking({"name": "shelf__look", "arguments": {"id": 2}}, kind="tool"))
    assert isinstance(miss, Miss)
    assert str(miss).endswith("arguments.id is 2, in step 2 of plain it was 1")
    nothing = steps_of().answer(asking(calls[0], kind="tool"))
    assert str(nothing).endswith("is not in the recording, nor one like it")


TOLD = "Today is {{currentDate}}. The fair is on 3 May 2027."
TEMPLATES = (DatedTemplate(TOLD),)


def dated(day: str, told: str = TOLD) -> str:
    return told.replace("{{currentDate}}", day)


@pytest.mark.parametrize(
    "place",
    [
        lambda text: {"messages": [{"role": "system", "content": text}]},
        lambda text: {"messages": [{"role": "developer", "content": [{"type": "text", "text": text}]}]},
        lambda text: {"system": [{"type": "text", "text": text}]},
        lambda text: {"instructions": text},
        lambda text: {"systemInstruction": {"parts": [{"text": text}]}},
    ],
    ids=["chat", "parts", "anthropic", "responses", "google"],
)  # fmt: skip
def test_a_date_of_the_template_may_differ_in_instructions_and_no_other_one(place: Any) -> None:
    def answers(text: str, templates: tuple[DatedTemplate, ...] = TEMPLATES) -> bool:
        steps = steps_of(run(step(place(dated("28 November 2026")), "x")))
        return isinstance(steps.answer(asking(place(text), templates=templates)), StepDetail)

    assert answers(dated("01 January 2027"))
    assert not answers(dated("01 January 2027"), templates=())
    assert not answers(dated("01 January 2027").replace("3 May", "4 May"))
    assert not answers(dated("2027-01-01"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("2026-12-24", "2027-01-05"),
        ("10:30", "23:45"),
        ("Today is 28 November 2026.", "Today is 29 November 2026."),
    ],
)
def test_dates_and_times_count_in_arguments_questions_and_answers(before: str, after: str) -> None:
    call, other = ({"name": "hotel__book", "arguments": {"at": each}} for each in (before, after))
    miss = steps_of(run(step(call, "x", kind="tool"))).answer(asking(other, kind="tool"))
    assert isinstance(miss, Miss)
    for role in ("user", "system"):
        said, now = (changed(messages=[{"role": role, "content": each}]) for each in (before, after))
        assert isinstance(steps_of(run(step(said, "x"))).answer(asking(now, templates=TEMPLATES)), Miss)
    answered = (Recording("p", (replace(run(), answer=each),)) for each in (before, after))
    assert first_replay_difference(*answered) is not None


def anthropic(book: Any, call: str = "c1", result: str = "c1") -> dict[str, Any]:
    return {
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": call, "input": {"id": book}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": result, "content": "x"}]},
        ]
    }


def test_an_id_in_arguments_and_schemas_counts_and_one_of_a_call_only_as_far_as_it_pairs() -> None:
    steps = steps_of(run(*(step(anthropic(1), "one", number) for number in (1, 2))))
    assert said(steps.answer(asking(anthropic(1, "c9", "c9")))) == "one"
    for other in (anthropic(2), anthropic("1"), anthropic(1, "c1", "c2")):
        assert isinstance(steps.answer(asking(other, 2)), Miss)

    def with_schema(kind: str) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"id": {"type": kind}}}
        return changed(tools=[{"type": "function", "function": {"name": "find", "parameters": schema}}])

    miss = steps_of(run(step(with_schema("string"), "x"))).answer(asking(with_schema("integer")))
    assert str(miss).endswith('properties.id.type is "integer", in step 1 of plain it was "string"')


@pytest.mark.parametrize("digest", ["", "f" * 64])
def test_a_recording_of_an_older_form_is_compared_as_a_whole(digest: str) -> None:
    old = step(anthropic(1), "one", digest=digest)
    assert said(steps_of(run(old)).answer(asking(anthropic(1, "c9", "c9")))) == "one"
    # The same number in both, as an older form would have it.
    request = replace(asking(anthropic(2)), digest=digest)
    assert isinstance(steps_of(run(old)).answer(request), Miss)


def test_the_exact_request_goes_before_one_of_another_day() -> None:
    noon, night = (changed(instructions=dated(each)) for each in ("28 November 2026", "29 November 2026"))
    steps = steps_of(run(step(noon, "noon"), step(night, "night", 2)))
    asked = (asking(each, number, templates=TEMPLATES) for number, each in enumerate((night, noon)))
    assert [said(steps.answer(each)) for each in asked] == ["night", "noon"]


def test_a_picture_that_the_recording_lacks_is_stood_in_for_and_another_one_is_a_miss() -> None:
    data = "A" * 40_000
    stored, url = shortened(data), shortened(f"data:image/png;base64,{data}")
    assert original(stand_in(stored)) == stored
    for sent, kept in ((stand_in(stored), stored), (f"data:image/png;base64,{stand_in(stored)}", url)):
        steps = steps_of(run(step(changed(image=kept), "seen")))
        assert said(steps.answer(asking(changed(image=sent)))) == "seen"
    other = shortened("B" * 40_000)
    assert isinstance(
        steps_of(run(step(changed(image=stored), "x"))).answer(asking(changed(image=other))), Miss
    )
    assert same(data, stored)
    assert not same(data, other)
    assert not same("B" * 40_000, sha256(b"x").hexdigest())


def test_a_step_that_broke_off_has_no_answer_and_an_error_is_one() -> None:
    attempts = (StepAttempt(0.0, 200, 1.0),)
    broken = step(ASKED, "half", state="failed", fault="APIConnectionError", attempts=attempts)
    miss = steps_of(run(broken)).answer(asking(ASKED))
    assert str(miss).endswith("step 1 of plain ended as failed (APIConnectionError)")
    refused = step(ASKED, "no", state="failed", attempts=(StepAttempt(0.0, 400, 1.0),))
    assert said(steps_of(run(refused)).answer(asking(ASKED))) == "no"


def test_a_run_of_an_agent_elsewhere_is_found_by_its_question() -> None:
    steps = steps_of(
        *(
            run(name=name, question=text)
            for name, text in (("a", "at 10:00"), ("b", "at 11:00"), ("c", "why"))
        )
    )
    questions = ("at 11:00", "at 10:00", "at 12:00")
    found = [steps.run_of(f"now-{each}", "plain", each) for each in questions]
    assert [each.id for each in found if isinstance(each, RecordedRun)] == ["b", "a"]
    miss = steps.run_of("now", "plain", "how")
    assert not isinstance(miss, RecordedRun)
    assert miss is not None
    assert (miss.path, miss.before, miss.after) == ("question", '"why"', '"how"')


TOOL = {"name": "shelf__find", "description": "Find.", "parameters": {"type": "object"}}
LISTS = {
    "chat": [{"type": "function", "function": TOOL}],
    "responses": [{"type": "function", **TOOL}],
    "anthropic": [{"name": "shelf__find", "description": "Find.", "input_schema": {"type": "object"}}],
    "google": [{"functionDeclarations": [{**TOOL, "parameters": {"type": "OBJECT"}}]}],
}


@pytest.mark.parametrize("form", LISTS)
def test_the_tools_of_a_server_are_those_that_a_model_saw(form: str) -> None:
    request = {"tools": LISTS[form], "instructions": "nothing"}
    (tool,) = RecordedTools(Recording("p", (run(step(request, "x")),))).of("shelf")
    assert (tool.name, tool.description, tool.schema) == ("find", "Find.", {"type": "object"})


def test_the_order_of_tools_is_that_of_the_agent_who_saw_most() -> None:
    def shown(*names: str) -> dict[str, Any]:
        return {"tools": [{"name": f"shelf__{name}", "input_schema": {}} for name in names]}

    runs = (run(step(shown("c"), "x")), run(step(shown("a", "b", "c"), "x")))
    tools = RecordedTools(Recording("p", runs))
    assert [each.name for each in tools.of("shelf")] == ["a", "b", "c"]
    assert tools.of("shelf__a") == ()


def test_the_instructions_of_a_server_are_taken_from_those_of_an_agent() -> None:
    told = (
        'You are plain.\n<fastagent:mcp-server name="shelf">\n<tools>shelf__find</tools>\n'
        "<instructions>\nFind first.\nThen look.\n</instructions>\n</fastagent:mcp-server>"
    )
    request = {"messages": [{"role": "system", "content": told}], "tools": []}
    tools = RecordedTools(Recording("p", (run(step(request, "x")),)))
    assert tools.instructions("shelf") == "Find first.\nThen look."
    assert tools.instructions("other") == ""


def test_the_first_difference_of_a_replay() -> None:
    def recording(*steps: StepDetail, answer: str = "a") -> Recording:
        return Recording("p", (replace(run(*steps), answer=answer),))

    before = recording(step(ASKED, "one"))
    assert first_replay_difference(before, before) is None
    for after, words in (
        (
            recording(step(ASKED, "two")),
            'step 1 of plain: another answer of m: answer is "two", and was "one"',
        ),
        (
            recording(step(ASKED, "one"), answer="b"),
            'plain: the run ends differently: answer is "b", and was "a"',
        ),
        (recording(), "step 1 of plain: the model request m is not made"),
        (
            recording(step(ASKED, "one"), step(ASKED, "one", 2)),
            "step 2 of plain: the model request m is not in the recording",
        ),
        (
            recording(step(changed(temperature=1), "one")),
            "step 1 of plain: another model request: temperature is 1, and was 0.5",
        ),
    ):
        assert str(first_replay_difference(before, after)) == words


def test_what_a_server_asked_of_a_model_is_no_difference() -> None:
    call = step({"name": "shelf__find", "arguments": {}}, "x", 1, "tool")
    sampled = step(ASKED, "sampled", 2, parent=1)
    first, second = (Recording("p", (run(*steps),)) for steps in ((call, sampled), (call,)))
    assert first_replay_difference(first, second) is None


def test_what_a_replay_left_unused_is_found_behind_other_differences() -> None:
    def recording(*steps: StepDetail, below: tuple[StepDetail, ...] | None = None) -> Recording:
        inner = (replace(run(*below, name="b", agent="inner"), parent="r"),) if below is not None else ()
        return Recording("p", (run(*steps), *inner))

    whole = recording(step(ASKED, "one"), step(changed(n=2), "two", 2), below=(step(ASKED, "x"),))
    assert first_unused(whole, whole) is None
    other = recording(step(ASKED, "one"), step(changed(n=2), "other", 2), below=(step(ASKED, "x"),))
    assert first_unused(whole, other) is None
    for lost, words in (
        (recording(step(ASKED, "other"), below=()), "step 2 of plain: the model request m is not made"),
        (
            recording(step(ASKED, "one"), step(changed(n=2), "two", 2)),
            "plain: it leads to 0 runs, and led to 1",
        ),
        (
            recording(step(ASKED, "one"), step(changed(n=2), "two", 2), below=()),
            "step 1 of inner: the model request m is not made",
        ),
    ):
        assert str(first_unused(whole, lost)) == words
