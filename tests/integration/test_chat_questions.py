"""What a run asks a person, answered on lines by `pallas chat`, with a real fleet behind it."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.approvals import approvals_project
from support.live import all_ready, running
from support.survivors import effects
from support.waiting import until

from pallas.cli.chat_client import chat_turn
from pallas.cli.chat_client.chat_terminal import ChatTerminal
from pallas.cli.chat_client.chat_turn import ChatReply, ChatTurn
from pallas.cli.chat_client.question_form import meant
from pallas.client import FleetAddress, connect
from pallas.fleet.fleet import Fleet

SCHEMA = {
    "type": "object",
    "properties": {
        "iban": {"type": "string", "title": "IBAN"},
        "amount": {"type": "integer", "minimum": 1},
        "speed": {"type": "string", "enum": ["slow", "fast"], "default": "slow"},
        "letter": {"type": "boolean"},
        "note": {"type": "string"},
    },
    "required": ["iban", "amount"],
}


class Lines:
    """A person who types these lines; then none any more."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.prompts: list[str] = []

    def discard(self) -> bool:
        return False

    async def read(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)


class Talk:
    """A turn with the clerk: what it writes to stderr, and the task of its answer."""

    def __init__(self, asking: "asyncio.Task[ChatReply]", err: int) -> None:
        self.asking, self._err = asking, err
        self._said = ""

    def said(self) -> str:
        with suppress(BlockingIOError):
            self._said += os.read(self._err, 65_536).decode()
        return self._said


@asynccontextmanager
async def talking(
    fleet: Fleet, message: str, lines: Lines | None, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Talk]:
    monkeypatch.setattr(chat_turn, "terminal_lines", lambda terminal: lines)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    out = os.open(os.devnull, os.O_WRONLY)
    async with connect(FleetAddress(fleet.ports.origin), "") as api:
        turn = ChatTurn(api, "clerk", ChatTerminal({"TERM": "dumb"}, out=out, err=writer))
        asking = asyncio.create_task(turn.ask({"message": message}))
        try:
            yield Talk(asking, reader)
        finally:
            asking.cancel()
            await asyncio.wait({asking})
            for each in (reader, writer, out):
                os.close(each)


def ask_form(fleet: Fleet) -> "asyncio.Task[Any]":
    run = next(iter(fleet.kernel.in_flight))
    work = fleet.questions.form(run_id=run.id, message="To which account?", schema=SCHEMA, server="shop")
    return asyncio.create_task(work)


async def test_a_form_is_filled_in_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = approvals_project(tmp_path / "p", tools={})
    lines = Lines("perhaps", "y", "DE02", "much", "0", "2", "", "", "y", "DE02", "12", "2", "n", "")
    async with running(root, database=f"sqlite:///{tmp_path}/ledger.sqlite3") as fleet:
        await until(lambda: all_ready(fleet))
        async with talking(fleet, "wait for it", lines, monkeypatch) as talk:
            await until(lambda: effects(root))
            asked = ask_form(fleet)
            ended = await asyncio.wait_for(asked, 60)
            # 0 is no amount: the fleet says so, and the form begins again.
            assert ended.content == {"iban": "DE02", "amount": 12, "speed": "fast", "letter": False}
            said = talk.said()
            assert "[clerk wants a form filled in for shop, until " in said
            assert "To which account?" in said
            assert any("a whole number" in each for each in lines.prompts)
            (root / "door").touch()
            assert (await talk.asking).fault is None


async def test_without_a_person_it_says_where_to_answer_and_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = approvals_project(tmp_path / "p")
    async with running(root, database=f"sqlite:///{tmp_path}/ledger.sqlite3") as fleet:
        await until(lambda: all_ready(fleet))
        for lines in (None, Lines()):  # no terminal; one that is closed at the question
            async with talking(fleet, "note it", lines, monkeypatch) as talk:
                await until(lambda: "pallas answer q-" in talk.said())
                (question,) = fleet.questions.open_here
                assert question.id in talk.said()
                async with connect(FleetAddress(fleet.ports.origin), "") as api:
                    await api.post(f"/questions/{question.id}/answer", {"action": "decline"})
                answer = await talk.asking
                assert "A person declined this call" in answer.text
                assert "(refused by " in talk.said()
    assert effects(root) == []


@pytest.mark.parametrize(
    ("field", "line", "value"),
    [
        ({"type": "number"}, " 1.5 ", 1.5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "string"}, "a b", "a b"),
        ({"enum": ["a", "b"]}, "B", "b"),
        ({"oneOf": [{"const": 1, "title": "One"}, {"const": 2, "title": "Two"}]}, "two", 2),
        ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, "a, 3", ["a", "c"]),
        ({"type": "integer", "default": 7}, "", 7),
    ],
)
def test_a_line_stands_for_a_value(field: dict[str, Any], line: str, value: Any) -> None:
    assert meant(field, line, is_required=True) == value


@pytest.mark.parametrize(
    ("field", "line"),
    [({"type": "integer"}, "1.5"), ({"type": "boolean"}, "perhaps"), ({"enum": ["a"]}, "b"), ({}, "")],
)
def test_a_line_that_is_no_value_says_what_is_expected(field: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        meant(field, line, is_required=True)
