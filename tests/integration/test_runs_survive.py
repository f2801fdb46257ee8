"""A fleet that is killed in the middle of a run goes on with it when it is started again."""

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.live import ERAS
from support.served import Served, fault_in, served, text_of
from support.surfaces import rest
from support.survivors import TOLD, effects, ended_run, project
from support.waiting import until

from pallas.cli.app import run as typed
from pallas.ledger import open_ledger
from pallas.model import RunRecord, Step


async def asked(fleet: Served, era: str, text: str) -> None:
    """Ask the clerk, until its fleet is gone."""
    with suppress(Exception):  # the connection breaks
        async with fleet.client("clerk", era) as clerk:
            await clerk.call_tool("send_message", {"message": text, "conversation_id": "a thread of mine"})


async def killed_in_its_call(root: Path, text: str, era: str = ERAS[0], url: str = "") -> None:
    """A fleet that is killed while the tool ``wait`` is under way, with ``url`` once its steps are stored."""
    with served(root) as fleet:
        await fleet.says("] running")
        asking = asyncio.create_task(asked(fleet, era, text))
        await until(lambda: any(each.startswith("wait") for each in effects(root)), timeout=60)
        if url:
            await written(url, 4)
        fleet.send(signal.SIGKILL)
        await fleet.ended()
        await asking


async def steps(url: str, run: RunRecord) -> list[tuple[int, str, str]]:
    """Number, kind and state of the run's steps in the ledger, whose tokens are those of the run."""
    ledger = await open_ledger(url)
    try:

        async def all_done() -> Sequence[Step]:
            found = await ledger.steps.list(run.id)
            return found if found[-1].state == "done" else ()

        found = await until(all_done)  # the last ones are written a moment after the run
        assert run.tokens_in == sum(each.usage.input or 0 for each in found) > 0
        assert run.tokens_out == sum(each.usage.output or 0 for each in found) > 0
        return [(each.number, each.kind, each.state) for each in found]
    finally:
        await ledger.close()


async def written(url: str, number: int) -> None:
    """Wait until the ledger has so many steps of the only run."""
    ledger = await open_ledger(url)

    async def has_them() -> bool:
        (run,) = (await ledger.runs.list()).items
        return len(await ledger.steps.list(run.id)) >= number

    try:
        await until(has_them)
    finally:
        await ledger.close()


def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.sqlite3"


async def described(fleet: Served, run: RunRecord, capsys: pytest.CaptureFixture[str]) -> str:
    """What `pallas describe` says of the unfinished calls of a run."""
    await fleet.says("] running")
    capsys.readouterr()
    words = ["--project", str(fleet.root), "describe", "run", run.id]
    assert await asyncio.to_thread(typed, words) == 0
    lines = capsys.readouterr().out.splitlines()
    (found,) = (line for line in lines if line.startswith("Unfinished calls:"))
    return found.removeprefix("Unfinished calls:").strip()


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["none", "process"])
@pytest.mark.parametrize(
    ("rules", "outcome", "waits"),
    [
        (None, "assistant complete: I do not know whether it was done", 1),
        ({"shelf__w*": "repeat"}, 'assistant complete: done: {"result":"waited b"}', 2),
    ],
    ids=["told", "repeated"],
)
async def test_a_run_goes_on_at_its_last_step_and_a_lost_call_as_its_rule_says(
    tmp_path: Path,
    rules: dict[str, str] | None,
    outcome: str,
    waits: int,
    isolation: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = database(tmp_path)
    rules_of_agent = {"unfinished_calls": rules} if rules else {}
    root = project(tmp_path / "p", url, isolation=isolation, **rules_of_agent)
    await killed_in_its_call(root, "work", url=url)
    (root / "door").touch()
    with served(root) as fleet:
        run, rows = await ended_run(url)
        assert (run.status, run.attempt) == ("ok", 2)
        assert effects(root) == ["note a", *["wait b"] * waits]
        assert rows[0] == "user complete: work"
        assert "noted a" in rows[2]
        assert (TOLD in rows[4]) == (waits == 1)
        assert rows[5:] == [outcome]
        assert await steps(url, run) == [
            (1, "model", "done"),
            (2, "tool", "done"),
            (3, "model", "done"),
            (4, "tool", "unknown"),
            *([(5, "tool", "done"), (6, "model", "done")] if waits == 2 else [(5, "model", "done")]),
        ]
        done = "called again" if rules else "told the model"
        assert await described(fleet, run, capsys) == f"shelf__wait: {done}"
        # The conversation goes on where the run ended.
        async with fleet.client("clerk", ERAS[0]) as clerk:
            answer = await clerk.call_tool(
                "send_message", {"message": "hi", "conversation_id": "a thread of mine"}
            )
            assert text_of(answer) == "turn 2"


@pytest.mark.slow
async def test_a_run_whose_rule_is_fail_ends_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = database(tmp_path)
    root = project(tmp_path / "p", url, top={"unfinished_calls": {"shelf__wait": "fail"}})
    await killed_in_its_call(root, "work", ERAS[1])
    (root / "door").touch()
    with served(root) as fleet:
        run, rows = await ended_run(url)
        assert run.status == "error"
        assert await described(fleet, run, capsys) == "shelf__wait: fails the run"
        why = "whether it was done is unknown, and its rule in unfinished_calls is `fail`;"
        assert f"while shelf__wait was called: {why}" in run.fault
        assert effects(root) == ["note a", "wait b"]
        assert [row.split(":")[0] for row in rows] == [
            "user error", "assistant error", "tool error", "assistant error",
        ]  # fmt: skip


@pytest.mark.slow
async def test_of_calls_made_at_once_only_the_one_whose_answer_was_lost_is_repeated(tmp_path: Path) -> None:
    url = database(tmp_path)
    root = project(tmp_path / "p", url, unfinished_calls={"*": "repeat"})

    def has_both() -> Any:
        return len(effects(root)) == 2

    with served(root) as fleet:
        await fleet.says("] running")
        asking = asyncio.create_task(asked(fleet, ERAS[0], "both"))
        await until(has_both, timeout=60)
        # The result of the first call is stored while the second is under way.
        await until(lambda: stored_results(tmp_path) == 1)
        fleet.send(signal.SIGKILL)
        await fleet.ended()
        await asking
    (root / "door").touch()
    with served(root):
        run, rows = await ended_run(url)
    assert run.status == "ok"
    assert sorted(effects(root)) == ["note both", "wait both", "wait both"]
    assert ["noted both" in rows[2], "waited both" in rows[3]] == [True, True]
    assert stored_results(tmp_path) == 0


def stored_results(tmp_path: Path) -> int:
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite3")) as connection:
        return int(connection.execute("SELECT count(*) FROM call_results").fetchone()[0])


@pytest.mark.slow
async def test_a_run_that_ends_each_fleet_is_given_up(tmp_path: Path) -> None:
    url = database(tmp_path)
    root = project(tmp_path / "p", url, unfinished_calls={"*": "repeat"})
    await killed_in_its_call(root, "work")
    for waits in (2, 3):
        with served(root) as fleet:
            await until(lambda number=waits: effects(root).count("wait b") == number, timeout=60)  # type: ignore[misc]
            fleet.send(signal.SIGKILL)
            await fleet.ended()
    with served(root):
        run, _ = await ended_run(url)
    assert (run.status, run.attempt) == ("error", 3)
    assert "3 fleets died while they worked on the same step of it" in run.fault
    assert effects(root) == ["note a", "wait b", "wait b", "wait b"]


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_a_fleet_that_is_asked_to_stop_hands_a_run_over_after_its_step(
    tmp_path: Path, era: str, isolation: str
) -> None:
    url = database(tmp_path)
    root = project(tmp_path / "p", url, top={"drain": "hand_over"}, isolation=isolation)
    with served(root) as fleet:
        await fleet.says("] running")
        async with fleet.client("clerk", era) as clerk:
            asking = asyncio.create_task(
                clerk.call_tool("send_message", {"message": "work", "conversation_id": "a thread of mine"})
            )
            await until(lambda: len(effects(root)) == 2, timeout=60)
            fleet.send(signal.SIGTERM)
            await fleet.says("1 run in flight")
            (root / "door").touch()
            fault = fault_in(await asking)
        assert fault["data"]["reason"] == "handed_over", fault
        assert not fault["data"]["retryable"]
        assert await fleet.ended() == 0
    with served(root):
        run, said = await ended_run(url)
    assert (run.status, run.attempt, run.id) == ("ok", 2, fault["data"]["run_id"])
    assert effects(root) == ["note a", "wait b"]
    assert said[5:] == ['assistant complete: done: {"result":"waited b"}']


@pytest.mark.slow
async def test_a_run_whose_step_takes_too_long_is_handed_over_in_it(tmp_path: Path) -> None:
    url = database(tmp_path)
    root = project(tmp_path / "p", url, top={"drain": "hand_over", "drain_timeout": 0.2})
    with served(root) as fleet:
        await fleet.says("] running")
        asking = asyncio.create_task(asked(fleet, ERAS[0], "work"))
        await until(lambda: len(effects(root)) == 2, timeout=60)
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 0
        await asking
    with served(root):
        run, said = await ended_run(url)
    assert (run.status, run.attempt) == ("ok", 2)
    assert TOLD in said[4]


async def streamed(
    api: httpx2.AsyncClient, run_id: str, after: str = ""
) -> AsyncIterator[tuple[int, dict[str, Any]]]:
    """The numbered chunks of a run, to its end."""
    headers = {"last-event-id": after} if after else {}
    async with api.stream("GET", f"/runs/{run_id}/events", headers=headers) as stream:
        assert stream.status_code == 200
        number = 0
        async for line in stream.aiter_lines():
            if line.startswith("id: "):
                number = int(line.removeprefix("id: "))
            elif line.startswith("data: {"):
                yield number, json.loads(line.removeprefix("data: "))


@pytest.mark.slow
@pytest.mark.parametrize("reads", ["while it goes on", "when it is over"])
async def test_a_stream_goes_on_with_the_next_number_and_a_key_gets_the_answer(
    tmp_path: Path, reads: str
) -> None:
    url = database(tmp_path)
    root = project(tmp_path / "p", url, unfinished_calls={"*": "repeat"})
    body, key = {"message": "tell me", "stream": True}, {"idempotency-key": "once"}
    seen: list[tuple[int, dict[str, Any]]] = []
    with served(root) as fleet:
        await fleet.says("] running")
        async with rest(fleet) as api:
            async with api.stream("POST", "/agents/clerk/chat", json=body, headers=key) as begun:
                run_id = begun.headers["pallas-run-id"]
            async for number, chunk in streamed(api, run_id):
                seen.append((number, chunk))
                if chunk["type"] == "tool_call":
                    break
            await until(lambda: effects(root) == ["wait b"], timeout=60)
        fleet.send(signal.SIGKILL)
        await fleet.ended()
    with served(root) as fleet:
        await fleet.says("] running")
        async with rest(fleet) as api:
            if reads == "when it is over":
                (root / "door").touch()
                assert (await ended_run(url))[0].status == "ok"
            rest_of_it = []
            async for number, chunk in streamed(api, run_id, str(seen[-1][0])):
                rest_of_it.append((number, chunk))
                (root / "door").touch()
            again = (await api.post("/agents/clerk/chat", json={**body, "stream": False}, headers=key)).json()
    assert "".join(chunk["delta"] for _, chunk in seen[:-1]) == "One moment."
    numbers = [number for number, _ in (*seen, *rest_of_it)]
    assert numbers == sorted(set(numbers))
    types = [chunk["type"] for _, chunk in rest_of_it]
    assert types[0] == "rollback"
    assert types[-1] == "final"
    said = "".join(chunk["delta"] for _, chunk in rest_of_it if chunk["type"] == "text")
    assert said.lstrip() == 'done: {"result":"waited b"}'
    assert again["runId"] == run_id
    assert again["text"].endswith('done: {"result":"waited b"}')
    assert effects(root) == ["wait b", "wait b"]


KEYED = {"local.pallas/idempotency": "the same once more"}


async def sent(
    fleet: Served, era: str, text: str, meta: Mapping[str, Any] = KEYED, progress: list[str] | None = None
) -> Any:
    """What the clerk answers to a message with a key; its progress is added to ``progress``."""
    lines = [] if progress is None else progress

    async def note(done: float, total: float | None, message: str | None) -> None:
        lines.append(message or "")

    asked = {"message": text, "conversation_id": "new"}
    async with fleet.client("clerk", era) as clerk:
        return await clerk.call_tool("send_message", asked, meta=meta, progress_callback=note)


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_a_message_that_is_sent_again_with_its_key_joins_the_run_that_goes_on(
    tmp_path: Path, era: str
) -> None:
    url = database(tmp_path)
    root = project(tmp_path / "p", url, unfinished_calls={"*": "repeat"})
    with served(root) as fleet:
        await fleet.says("] running")
        gone = asyncio.create_task(sent(fleet, era, "work"))
        await until(lambda: len(effects(root)) == 2, timeout=60)
        gone.cancel()  # a caller that gives up does not end the run
        with suppress(asyncio.CancelledError):
            await gone
        second = asyncio.create_task(sent(fleet, era, "work"))
        await fleet.in_flight(1)
        fleet.send(signal.SIGKILL)
        await fleet.ended()
        with suppress(Exception):  # its connection is broken
            await second
    with served(root) as fleet:
        await fleet.says("] running")
        seen: dict[str, list[str]] = {each: [] for each in ERAS}
        again = [asyncio.create_task(sent(fleet, each, "work", progress=seen[each])) for each in ERAS]
        await until(lambda: effects(root).count("wait b") == 2, timeout=60)
        # Who joins a run hears of the call under way, whether it asked before or after that began.
        await until(lambda: all(any("wait: started" in line for line in each) for each in seen.values()))
        (root / "door").touch()
        answers = [text_of(await each) for each in again]
        # Once it is over, the answer that it left.
        answers.append(text_of(await sent(fleet, era, "work")))
        assert len({*answers}) == 1
        assert all(any("wait: completed" in line for line in each) for each in seen.values())
        assert answers[0].endswith('done: {"result":"waited b"}')
        assert effects(root) == ["note a", "wait b", "wait b"]
        other = fault_in(await sent(fleet, era, "hi"))
        assert "was sent with another request before" in other["error"]
        wrong = fault_in(await sent(fleet, era, "hi", {"local.pallas/idempotency": ""}))
        assert "is not a key; send 1 to 255 printable ASCII characters" in wrong["error"]


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_a_worker_process_that_dies_leaves_its_run_to_another(tmp_path: Path, era: str) -> None:
    url = database(tmp_path)
    root = project(tmp_path / "p", url, unfinished_calls={"*": "repeat"})
    with served(root, "--workers", "2") as fleet:
        await fleet.says("running")
        first = asyncio.create_task(sent(fleet, era, "work"))
        await until(lambda: len(effects(root)) == 2, timeout=60)
        worker = int((root / "caller").read_text("utf-8"))
        assert worker in fleet.children()
        os.kill(worker, signal.SIGKILL)
        await until(lambda: effects(root).count("wait b") == 2, timeout=60)
        (root / "door").touch()
        with suppress(Exception):  # its connection is broken
            await first
        assert text_of(await sent(fleet, era, "work")).endswith('done: {"result":"waited b"}')
    assert effects(root) == ["note a", "wait b", "wait b"]
