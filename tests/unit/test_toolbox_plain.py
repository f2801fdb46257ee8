"""JSON from outside as text that may be shown."""

import json
from typing import Any

from pallas.model.redaction import forget, redact
from pallas.toolbox.plain_json import json_text, text_of

HOSTILE = "a\x1b]52;c;eA==\x07b\u202ec\x9b1md"


def test_texts_and_names_are_sanitised_and_stay_so_when_the_json_is_read_again() -> None:
    value = json.loads(json_text({HOSTILE: [HOSTILE, {"x": HOSTILE}], "n": 1, "b": True, "z": None}, 10_000))
    clean = "a␛]52;c;eA==\\x07b\\u202ec\\x9b1md"
    assert value == {clean: [clean, {"x": clean}], "n": 1, "b": True, "z": None}


def test_secrets_are_masked_by_value_shape_and_name() -> None:
    redact("hunter2-hunter2")
    try:
        value = json.loads(
            json_text(
                {
                    "a": "it is hunter2-hunter2",
                    "api_key": "whatever",
                    "b": ["sk-abcdefghijklmnop"],
                    "tokens": 12,
                    "password": ["x"],
                },
                10_000,
            )
        )
    finally:
        forget("hunter2-hunter2")
    assert value["a"] == "it is [redacted]"
    assert value["api_key"] == "[redacted]"
    assert value["b"] == ["[redacted]"]
    assert value["tokens"] == 12
    assert value["password"] == ["[redacted]"]


def test_names_in_a_schema_are_no_secrets() -> None:
    schema = {"properties": {"token": {"type": "string"}}, "required": ["token"], "token": "type"}
    assert json.loads(json_text(schema, 10_000, names=False)) == schema


def test_long_texts_are_shortened_and_the_json_stays_whole() -> None:
    value = json.loads(json_text({"data": "x" * 100_000, "k": "v"}, 50_000, each=2_000))
    assert value["k"] == "v"
    assert value["data"].startswith("x" * 2_000 + "…")
    assert "98000 more characters" in value["data"]
    value = json.loads(json_text({str(n): "y" * 900 for n in range(100)}, 20_000))
    assert len(value) == 100
    assert value["0"].endswith("(800 more characters)")


def test_what_is_too_long_whatever_is_done_says_so() -> None:
    text = json_text(list(range(100_000)), 1_000)
    assert len(text) < 200
    assert "left out" in json.loads(text)["$comment"]


def test_a_bottomless_value_is_cut() -> None:
    value: Any = "end"
    for _ in range(5_000):
        value = [value]
    assert "nested too deeply" in json_text(value, 10_000)


def test_a_secret_across_the_cut_leaves_no_stump() -> None:
    secret = "correct-horse-battery-staple"
    redact(secret)
    try:
        shown = text_of("x" * 90 + secret, 100)
    finally:
        forget(secret)
    assert "correct" not in shown
