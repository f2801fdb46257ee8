"""The parts of `make bench ARGS=peers` without its peers: the model server, the proof of turns, the table."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.caller import Connection
from benchmarks.load import Slice
from benchmarks.model_server import Counts, answer_text, counts_of, listen
from benchmarks.peers.clients import TurnClient
from benchmarks.peers.comparison import Comparison, measure
from benchmarks.peers.environments import NotInstalledError, requirements, versions
from benchmarks.peers.measured import Conversation, Sample, SideError
from benchmarks.peers.results import MANY, Found, Memory, lines, ratio
from benchmarks.peers.sides import SIDES, Place, Side

WORDS = 3
PATH = "/v1/chat/completions"


@asynccontextmanager
async def model() -> AsyncIterator[str]:
    async with await listen(0, WORDS) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def request(messages: int, **keys: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": "hello"}] * messages, **keys}


async def test_an_answer_has_the_number_of_messages_that_were_sent() -> None:
    async with model() as url, Connection(url) as connection:
        for messages in (1, 7):
            answer = await connection.post(PATH, request(messages))
            assert answer["choices"][0]["message"]["content"] == answer_text(WORDS, messages)
            assert answer["usage"]["completion_tokens"] == WORDS


@pytest.mark.parametrize("usage", [True, False])
async def test_a_stream_has_the_same_text_and_its_tokens_only_if_asked(usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if usage else {}
    async with model() as url, Connection(url) as connection:
        body = json.dumps(request(2, stream=True, **options)).encode()
        _, fields, answer = await connection.exchange("POST", PATH, body)
    *chunks, end = (line.removeprefix("data: ") for line in answer.decode().split("\n\n") if line)
    assert fields["content-type"] == "text/event-stream"
    assert end == "[DONE]"
    values = [json.loads(chunk) for chunk in chunks]
    deltas = [choice["delta"] for value in values for choice in value["choices"]]
    assert "".join(delta.get("content", "") for delta in deltas) == answer_text(WORDS, 2)
    assert [value["usage"]["completion_tokens"] for value in values if "usage" in value] == [WORDS] * usage


async def test_a_request_may_come_in_pieces_and_several_on_one_connection() -> None:
    body = json.dumps(request(4)).encode()
    head = f"POST {PATH} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with model() as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        for _ in range(2):
            for piece in (head[:20], head[20:], body[:5], body[5:]):
                writer.write(piece)
                await writer.drain()
                await counts_of(url)  # the server has read the piece by now
            await asyncio.wait_for(reader.readuntil(answer_text(WORDS, 4).encode()), 30)
            await asyncio.wait_for(reader.readuntil(b"}}"), 30)
        writer.close()
        counts = await counts_of(url)
    assert (counts.connections, counts.answers) == (1, 2)


def side(*, kept: bool) -> Side:
    return Side("peer", lambda place: [], TurnClient, lambda: "peer 1", "rows", "nothing", kept)


@pytest.mark.parametrize(
    ("kept", "messages"), [(True, (2, 2)), (True, (2, 6)), (False, (2, 4)), (True, (2, 4, 4))]
)
def test_a_turn_that_the_model_did_not_see_is_a_failure(kept: bool, messages: tuple[int, ...]) -> None:
    conversation = Conversation(TurnClient("http://127.0.0.1:1"), side(kept=kept))
    *good, bad = messages
    for each in good:
        conversation.check(each)
    with pytest.raises(SideError, match=f"{bad} messages in turn {len(messages)}"):
        conversation.check(bad)


def test_a_turn_that_the_model_saw_is_none() -> None:
    for kept, messages in ((True, (2, 4, 6)), (False, (2, 2, 2))):
        conversation = Conversation(TurnClient("http://127.0.0.1:1"), side(kept=kept))
        for each in messages:
            conversation.check(each)


def test_a_side_that_fails_is_reported_and_the_next_one_is_tried(tmp_path: Path) -> None:
    def absent(place: Place) -> list[str]:
        raise NotInstalledError("no such package")

    ending = [sys.executable, "-c", "raise SystemExit('no such option')"]
    sides = [
        replace(side(kept=True), name="absent", command=absent),
        replace(side(kept=True), name="ending", command=lambda place: ending),
    ]
    comparison = Comparison(sides)
    comparison.alone(tmp_path, "http://127.0.0.1:1", starts=2, memory=True)
    comparison.side_by_side(tmp_path, "http://127.0.0.1:1", load=True, long=True)
    assert {each.name: reason for each, reason in comparison.failed.items()} == {
        "absent": "no such package",
        "ending": "the server ended (it printed: no such option)",
    }


@pytest.mark.parametrize("variable", ["PEERS", "FIGURES"])
def test_a_name_that_is_none_is_refused_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "langgraf")
    with pytest.raises(SystemExit, match=r"langgraf; there are pallas-mcp, .*langgraph.*, load"):
        next(measure())


def test_a_ratio_is_of_pairs_and_not_of_medians() -> None:
    assert ratio([2.0, 20.0, 30.0], [1.0, 10.0, 60.0]) == 2.0


def sample(server: float, answers: int, connections: int) -> Sample:
    turns = Slice([0.01] * answers, seconds=0.5, server=server, callers=0.001 * answers)
    return Sample(turns, Counts(connections, answers, 0.0005 * answers), 2048.0 * answers)


def test_the_tables_have_each_figure_in_its_unit_and_nothing_for_what_was_not_measured() -> None:
    ours, theirs = side(kept=True), side(kept=False)
    found = {
        ours: Found(
            {MANY: [sample(0.4, 100, 1)], 1: [sample(0.4, 50, 1)]},
            [(0.004, 0.006)],
            [3.0, 1.0, 2.0],
            [Memory(90, 100, 100)],
        ),
        theirs: Found({MANY: [sample(0.8, 100, 100)], 1: []}),
    }
    table = [line.text for line in lines(found, {side(kept=True): "no reason"})]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table if row.startswith("|")]
    assert [row for row in rows if row[0].startswith("peer")] == [
        ["peer", "4.00", "1.00x", "200", "10.0", "100", "10.0", "2.0", "10"],
        ["peer (not kept)", "8.00", "2.00x", "200", "10.0", "", "", "2.0", "1000"],
        ["peer", "1.50x", "90", "100 (100)", "100", "2.0"],
    ]
    assert [len(row) for row in rows] == [9, 9, 9, 9, 6, 6, 6]
    assert "peer: failed, no reason" in table
    assert "a turn took 0.500 ms of the model server, 1.000 ms of the caller" in table


def test_the_versions_of_all_peers_are_pinned() -> None:
    for name in ("agno", "fast-agent", "google-adk", "langgraph", "openai-agents", "pydantic-ai"):
        rows = [row for row in requirements(name).read_text("utf-8").splitlines() if row and row[0] != "#"]
        assert rows
        for row in rows:
            package, mark, version = row.partition("==")
            assert package and mark and version and "/" not in row, row
        assert versions(name).startswith(rows[0].replace("==", " "))
    assert len({each.name for each in SIDES}) == len(SIDES)
