"""What `make rehearse` judges by: each thing that must not happen is found."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.rest_stream import Stream
from deploy.rehearse import DEPLOY
from deploy.rolling_update import verdict
from deploy.rolling_update.callers import Sent
from deploy.rolling_update.deployment import STEPS, Compose

TOOLS = [tool for step in STEPS for tool in step]


def rows(*tokens: str, answer: str = "done {}", status: str = "complete") -> list[dict[str, Any]]:
    """The rows of a conversation with these messages, each with a step before its answer."""
    found = []
    for token in tokens:
        texts = (("user", token), ("assistant", ""), ("tool", "x"), ("assistant", answer.format(token)))
        found += [{"role": role, "content": text, "status": status} for role, text in texts]
    return found


ONE, TWO = Sent("one", "a", 0.0, 1.0), Sent("two", "a", 2.0, 3.0)
AT_ONCE = Sent("at once", "a", 0.5, 2.5)


@pytest.mark.parametrize(
    ("there", "problem"),
    [
        (rows("one", "two"), ""),
        (rows("one"), "two was answered and is not in a"),
        (rows("one", "two", "one"), "one is in a 2 times"),
        (rows("two", "one"), "one was answered before two was sent, but follows it in a"),
        (rows("one", "two", answer="no"), "its answer is 'no'"),
        (rows("one", "two", status="error"), "one in a is error"),
    ],
)
def test_a_conversation_has_each_message_once_with_its_answer_in_order(
    there: list[dict[str, Any]], problem: str
) -> None:
    found = list(verdict.in_thread("a", [ONE, TWO], there))
    assert any(problem in each for each in found) if problem else not found


def test_messages_of_the_same_time_have_no_order() -> None:
    for order in (("one", "at once", "two"), ("at once", "one", "two")):
        assert not list(verdict.in_thread("a", [ONE, AT_ONCE, TWO], rows(*order)))


def test_each_tool_is_called_once_for_a_message(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    lines = [f"end\t0.0\t0\t{tool}\tone\n" for tool in TOOLS]
    effects.write_text("".join(lines))
    assert not list(verdict.of_tools(effects, [ONE]))
    effects.write_text("".join([*lines[:-1], lines[0]]))
    assert sorted(verdict.of_tools(effects, [ONE])) == [
        f"{TOOLS[0]} was called 2 times for one",
        f"{TOOLS[-1]} was called 0 times for one",
    ]


def stream_of(*chunks: tuple[int, dict[str, Any]], numbered: bool = True) -> Stream:
    """A stream with these chunks, each with its number."""
    stream = Stream(numbered=numbered)
    for number, chunk in chunks:
        if number:
            stream.read(f"id: {number}")
        stream.read(f"data: {json.dumps(chunk)}")
    return stream


def text(delta: str) -> dict[str, Any]:
    return {"type": "text", "delta": delta}


def test_a_stream_is_what_was_said_after_the_last_tool_and_the_last_rollback() -> None:
    call, rollback = {"type": "tool_call"}, {"type": "rollback"}
    stream = stream_of(
        (1, text("I look")), (2, call), (3, text("hal")), (1_000_001, rollback), (1_000_002, text("whole"))
    )
    assert (stream.text, stream.last, stream.is_whole, stream.problems) == ("whole", 1_000_002, False, [])
    stream.read("id: 1000003")
    assert stream.last == 1_000_002, "the number counts with its chunk"
    stream.read('data: {"type": "final"}')
    assert stream.is_whole


def test_a_stream_without_numbers_counts_from_one() -> None:
    stream = stream_of((0, text("a")), (0, text("b")), numbered=False)
    assert (stream.last, stream.problems) == (2, [])


@pytest.mark.parametrize(
    ("chunks", "problem"),
    [
        ([(1, text("a")), (3, text("b"))], "chunk 3 follows 1"),
        ([(1, text("a")), (1, text("a"))], "chunk 1 follows 1"),
        ([(1, text("a")), (1_000_001, text("b"))], "chunk 1000001 begins another attempt with text"),
        ([(1, text("a")), (1_000_002, text("b"))], "chunk 1000002 follows 1"),
        ([(1, text("a")), (0, text("b"))], "chunk 0 follows 1"),
    ],
)
def test_gaps_and_repeats_of_a_stream_are_found(chunks: list[Any], problem: str) -> None:
    assert stream_of(*chunks).problems == [problem]


@pytest.mark.parametrize(
    ("number", "reason", "is_end"), [(1, "handed_over", False), (0, "", False), (2, "", True)]
)
def test_an_error_is_the_end_of_the_run_or_of_its_connection(number: int, reason: str, is_end: bool) -> None:
    error = {"type": "error", "message": "no", "data": {"reason": reason}}
    stream = stream_of((1, text("a")), (number, error))
    assert stream.fault == {"error": "no", "data": {"reason": reason}}
    assert (stream.has_failed, stream.problems) == (is_end, [])


def test_replicas_get_what_compose_gives_them(tmp_path: Path) -> None:
    compose = Compose()
    given = compose.environment({"postgres:5432": "127.0.0.1:5", "/run/secrets": str(tmp_path / "secrets")})
    assert given["PALLAS_DATABASE_URL"] == "postgresql://pallas@127.0.0.1:5/pallas"
    assert given["CREDENTIALS_DIRECTORY"] == str(tmp_path / "secrets")
    made = compose.write_secrets(tmp_path / "secrets")
    assert {each.name: each.read_text() for each in (tmp_path / "secrets").iterdir()} == made
    named = re.search(r"secrets: \[(.*)\]", (DEPLOY / "compose.yaml").read_text())
    assert named is not None
    assert set(made) == set(named[1].split(", "))
    assert made["OPENAI_API_KEY"] == (DEPLOY / "no-key").read_text()
