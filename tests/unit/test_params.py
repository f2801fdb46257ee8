"""Parameters of a run: how they are read, and how they are laid over one another."""

import copy
import json
import math
import pickle
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas.model import Fault, FaultType, Params
from pallas.model.params import KEYS, PER_CALL_KEYS

_NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1000, 1000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)
_SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
_RIGHT: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.floats(0, 2) | st.integers(0, 2),
    "top_p": st.floats(0, 1),
    "top_k": st.integers(0, 1000),
    "max_tokens": st.integers(1, 10**6),
    "stop": st.text(min_size=1, max_size=5) | st.lists(st.text(min_size=1, max_size=5), max_size=4),
    "presence_penalty": st.floats(-2, 2),
    "frequency_penalty": st.floats(-2, 2),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "response_format": st.sampled_from([{"type": "text"}, {"type": "json_object"}, _SCHEMA]),
    "tool_choice": st.sampled_from(
        ["auto", "none", "required", {"type": "function", "function": {"name": "a__b"}}]
    ),
    "tools_allowlist": st.lists(_NAMES, max_size=3),
    "systemOverride": _NAMES,
    "systemAppend": _NAMES,
    "messages": st.just([{"role": "user", "content": "x"}]),
    "model": st.sampled_from(["openai.gpt-4o", "qwen3"]),
    "extra": st.dictionaries(_NAMES, _JSON, max_size=3),
}
_GIVEN = st.fixed_dictionaries({}, optional={key: st.none() | each for key, each in _RIGHT.items()})
_PARAMS = _GIVEN.map(lambda given: Params.read(given, strict=True))


def _camel(key: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), key)


def _snake(key: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1].lower()}", key)


@given(_GIVEN)
def test_both_spellings_say_the_same_and_what_is_read_is_read_again(values: dict[str, Any]) -> None:
    # UN-5
    read = Params.read(values, strict=True)
    assert Params.read({_camel(key): value for key, value in values.items()}, strict=True) == read
    assert Params.read({_snake(key): value for key, value in values.items()}, strict=True) == read
    stored = json.loads(json.dumps(read.to_json()))
    assert Params.read(stored, strict=False) == read
    assert pickle.loads(pickle.dumps(read)) == copy.deepcopy(read) == read


@pytest.mark.slow
@given(_PARAMS, _PARAMS, _PARAMS)
def test_of_three_layers_the_highest_that_says_anything_holds(top: Params, mid: Params, low: Params) -> None:
    # AG-8
    merged = top.over(mid.over(low))
    for key in KEYS:
        layers = [each for each in (top, mid, low) if key in each.values]
        assert (key in merged.values) == bool(layers)
        if layers and key != "extra":
            assert merged.values[key] == layers[0].values[key]
            assert merged.cleared(key) == layers[0].cleared(key)
    assert Params().over(merged) == merged.over(Params()) == merged


@given(_PARAMS, _PARAMS)
def test_extra_is_merged_by_its_keys_and_null_clears_all_below(top: Params, low: Params) -> None:
    # AG-8
    merged = top.over(low)
    mine, theirs = top.values.get("extra", {}), low.values.get("extra")
    if mine is None:
        assert merged.cleared("extra")
    else:
        assert merged.get("extra", {}) == {**(theirs or {}), **mine}


@given(st.dictionaries(st.sampled_from([*KEYS, *map(_camel, KEYS), "x", "temprature"]), _JSON, max_size=4))
def test_whatever_is_given_is_read_or_refused_with_its_key(values: dict[str, Any]) -> None:
    # AG-9
    for strict in (True, False):
        try:
            Params.read(values, strict=strict)
        except Fault as fault:
            assert fault.type is FaultType.PROTOCOL
            assert fault.data["key"] in {*values, "extra"}
            assert fault.message.startswith(f"{fault.data['key']}: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", True),
        ("temperature", "1"),
        ("topP", 1.1),
        ("top_k", 1.5),
        ("top_k", -1),
        ("max_tokens", 0),
        ("maxTokens", False),
        ("stop", ["a", "b", "c", "d", "e"]),
        ("stop", [""]),
        ("stop", 1),
        ("presence_penalty", 2.1),
        ("frequencyPenalty", -2.1),
        ("seed", "7"),
        ("seed", 2**63),
        ("response_format", "json_object"),
        ("response_format", {"type": "xml"}),
        ("responseFormat", {"type": "json_schema"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x"}}),
        ("tool_choice", "any"),
        ("tool_choice", {"type": "function"}),
        ("tool_choice", {"type": "function", "function": {"name": ""}}),
        ("tools_allowlist", "a__b"),
        ("tools_allowlist", [1]),
        ("systemOverride", 1),
        ("system_append", ["x"]),
        ("messages", []),
        ("messages", ["x"]),
        ("extra", []),
        ("extra", {"a": math.nan}),
        ("extra", {"a": {1, 2}}),
        ("extra", {"a": "\ud800"}),
        ("systemAppend", "\ud800"),
        ("tools_allowlist", ["\ud800"]),
        ("extra", {"a": json.loads("[" * 64 + "]" * 64)}),
        ("messages", [{"role": "user", "content": "\udfff"}]),
        ("extra", {str(n): n for n in range(65)}),
    ],
)
def test_what_is_out_of_range_is_refused_with_its_key(key: str, value: Any) -> None:
    # AG-9
    for strict in (True, False):
        with pytest.raises(Fault, match=f"^{key}: ") as refused:
            Params.read({key: value}, strict=strict)
        assert refused.value.type is FaultType.PROTOCOL
        assert refused.value.data["key"] == key


def test_an_unknown_key_is_refused_or_goes_to_extra() -> None:
    with pytest.raises(Fault, match="temprature: there is no such parameter; did you mean temperature"):
        Params.read({"temprature": 1}, strict=True)
    assert Params.read({"minP": 0.1, "extra": {"a": 1}}, strict=False).to_json() == {
        "extra": {"a": 1, "minP": 0.1}
    }
    with pytest.raises(Fault, match="minP: is not a parameter, and extra is null"):
        Params.read({"minP": 0.1, "extra": None}, strict=False)


def test_an_unknown_value_that_is_no_json_is_refused_with_its_own_key() -> None:
    with pytest.raises(Fault, match=r"^min_p: is not JSON") as refused:
        Params.read({"min_p": math.inf}, strict=False)
    assert refused.value.data["key"] == "min_p"


def test_a_key_in_two_spellings_is_refused() -> None:
    with pytest.raises(Fault, match="topP: is given twice, in two spellings"):
        Params.read({"top_p": 0.1, "topP": 0.2}, strict=False)
    with pytest.raises(Fault, match="max_completion_tokens: is given twice"):
        Params.read({"maxTokens": 1, "max_completion_tokens": 2}, strict=False)


def test_what_holds_for_one_call_is_no_default() -> None:
    for key in PER_CALL_KEYS:
        with pytest.raises(Fault, match="holds for one call only"):
            Params.read({key: "x"}, strict=True, refused=PER_CALL_KEYS)


def test_one_text_to_stop_at_is_a_list_and_an_empty_list_clears() -> None:
    assert Params.read({"stop": "END"}, strict=True).to_json() == {"stop": ["END"]}
    assert Params.read({"stop": []}, strict=True).cleared("stop")


def test_runtime_parameters_are_read_strictly_in_either_spelling() -> None:
    # DR-25, UN-5, C16
    given = {
        "model": "openai.gpt-4o",
        "temperature": 0.5,
        "maxTokens": 10,
        "top_p": 0.9,
        "topK": 1,
        "stopSequences": ["a", "b", "c", "d"],
        "systemPrompt": "Be short.",
        "detail": "low",
        "providerSpecific": {"seed": 7, "min_p": 0.1},
    }
    assert Params.read_runtime(given).to_json() == {
        "model": "openai.gpt-4o",
        "temperature": 0.5,
        "max_tokens": 10,
        "top_p": 0.9,
        "top_k": 1,
        "stop": ["a", "b", "c", "d"],
        "systemOverride": "Be short.",
        "seed": 7,
        "extra": {"min_p": 0.1, "detail": "low"},
    }
    assert Params.read_runtime({"providerSpecific": None, "topK": None}).to_json() == {
        "extra": None,
        "top_k": None,
    }


def test_layers_of_runtime_parameters_are_laid_over_one_another() -> None:
    # DR-25
    session = Params.read_runtime({"temperature": 1, "topP": 0.5, "providerSpecific": {"a": 1, "b": 1}})
    prompt = Params.read_runtime({"temperature": 0, "topP": None, "providerSpecific": {"b": 2}})
    merged = prompt.over(session.over(Params({"temperature": 2, "max_tokens": 9})))
    assert merged.to_json() == {
        "temperature": 0,
        "max_tokens": 9,
        "top_p": None,
        "extra": {"a": 1, "b": 2},
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"temprature": 1}, "temprature: there is no such parameter; did you mean temperature?"),
        ({"seed": 1}, "seed: there is no such parameter; known: model, temperature"),
        ({"temperature": 2.1}, "temperature: must be a number from 0 to 2"),
        ({"topP": -0.1}, "topP: must be a number from 0 to 1"),
        ({"topK": 0}, "topK: must be a whole number from 1"),
        ({"topK": 1.5}, "topK: must be a whole number"),
        ({"maxTokens": 0}, "maxTokens: must be a whole number from 1"),
        ({"stopSequences": list("abcde")}, "stopSequences: must be a text, or a list of at most 4"),
        ({"detail": "tiny"}, "detail: must be one of auto, low, high, original"),
        ({"model": " "}, "model: must be the name of a model"),
        ({"topP": 1, "top_p": 1}, "top_p: is given twice"),
        ({"providerSpecific": [1]}, "providerSpecific: must be an object"),
        ({"providerSpecific": {"temperature": 1}}, "providerSpecific.temperature: is a parameter of its own"),
        ({"providerSpecific": {"seed": "x"}}, "providerSpecific.seed: must be a whole number"),
    ],
)
def test_a_wrong_runtime_parameter_is_refused_with_its_key(given: dict[str, Any], said: str) -> None:
    # DR-25
    with pytest.raises(Fault, match=re.escape(said)) as raised:
        Params.read_runtime(given)
    assert raised.value.type is FaultType.PROTOCOL
    assert raised.value.data["key"] == said.partition(":")[0]
