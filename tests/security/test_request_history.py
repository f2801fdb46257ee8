"""``history`` of ``send_message``: so many rows, one warning, and others are answered meanwhile."""

import asyncio
import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai._utils import _transform
from support.live import ERAS, client, running, write_project
from support.scripted import model
from support.served import fault_in, text_of
from support.waiting import until

from pallas.bounds.images import check_images
from pallas.executors.fastagent import message_conversion
from pallas.model import Fault, Image
from pallas.runs.chat_messages import read_messages
from pallas.telemetry.log import close_logging, setup_logging

ROWS = 10_000


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    close_logging()
    yield setup_logging("info", path=tmp_path / "pallas.log", stderr=False)
    close_logging()


def rows(count: int) -> list[dict[str, Any]]:
    """Well-formed rows, together nearly all that a request may hold."""
    roles = ("user", "assistant")
    return [{"role": roles[number % 2], "content": f"{number} " * 50} for number in range(count)]


def warnings(log: Path) -> list[str]:
    found = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    return [each["message"] for each in found if "history" in each["message"]]


async def test_too_many_rows_are_refused_and_bad_ones_warn_once(tmp_path: Path, log_file: Path) -> None:
    # PR-18
    async with running(write_project(tmp_path / "project", {"desk": None})) as fleet:
        for era in ERAS:
            async with client(fleet, "desk", era=era) as desk:
                result = await desk.call_tool("send_message", {"message": "now", "history": [0] * 100_000})
                fault = fault_in(result)
                assert fault["data"]["type"] == "PROTOCOL"
                assert "at most 10000" in fault["error"]
                assert warnings(log_file) == []
        async with client(fleet, "desk") as desk:
            given = [*rows(2), *[{"role": "user", "content": 7}] * (ROWS - 2)]
            result = await desk.call_tool("send_message", {"message": "now", "history": given})
            assert text_of(result) == "now"
    (told,) = warnings(log_file)
    assert "9998 of 10000 rows of history were left out; history[2]: its content is not text" in told


async def test_others_are_answered_while_a_long_history_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    read_one = message_conversion._native

    def read(message: Any) -> Any:
        assert answered.wait(30), "the loop waits for this"
        return read_one(message)

    monkeypatch.setattr(message_conversion, "_native", read)
    async with (
        running(write_project(tmp_path / "project", {"desk": None})) as fleet,
        client(fleet, "desk") as one,
        client(fleet, "desk") as other,
    ):
        call = asyncio.create_task(one.call_tool("send_message", {"message": "now", "history": rows(ROWS)}))
        await until(lambda: fleet.snapshot().agents[0].runs_active or call.done())
        assert not (await other.call_tool("get_health", {})).is_error
        answered.set()
        assert text_of(await call) == "now"


@pytest.mark.slow
async def test_a_long_history_goes_to_the_model_without_a_pass_over_each_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = 0
    look_at = _transform._async_transform_recursive

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal passes
        passes += 1
        return await look_at(*args, **kwargs)

    monkeypatch.setattr(_transform, "_async_transform_recursive", counted)
    async with model(tmp_path, "rules:\n  - {when: {last: user}, say: heard}\n") as asked:
        config = {
            "default_model": "generic.scripted",
            "generic": {"base_url": asked.url, "api_key": "offline"},
        }
        root = write_project(tmp_path / "project", {"desk": None}, config=config)
        async with running(root) as fleet, client(fleet, "desk") as desk:
            given = rows(ROWS)
            result = await desk.call_tool("send_message", {"message": "now", "history": given})
            assert text_of(result) == "heard"
    (body,) = asked.record.requests
    sent = [(each["role"], each["content"]) for each in body["messages"] if each["role"] != "system"]
    flat = [(role, text if isinstance(text, str) else text[0]["text"]) for role, text in sent]
    assert flat == [*((each["role"], each["content"]) for each in given), ("user", "now")]
    assert passes < ROWS


def test_messages_of_a_call_have_the_same_limit() -> None:
    row = {"role": "user", "content": "x"}
    assert len(read_messages([row] * ROWS).history) == ROWS - 1
    with pytest.raises(Fault, match="messages has 10001 rows; at most 10000"):
        read_messages([row] * (ROWS + 1))


def test_pictures_of_a_message_are_counted_and_measured() -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(3_000_000)
    large = Image(b64encode(png).decode(), "image/png")
    with pytest.raises(Fault, match="21 images; at most 20"):
        check_images((large,) * 21, vision=True, model="m")
    with pytest.raises(Fault, match="3000000"):
        check_images((large,), vision=True, model="m")
