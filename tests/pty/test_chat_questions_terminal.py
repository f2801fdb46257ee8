"""Questions of a run in `pallas chat`: a real fleet, in a real terminal (tmux)."""

import asyncio
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from support.approvals import approvals_project
from support.chatting import Desk
from support.survivors import effects
from support.terminal import Terminal, needs_tmux, terminal
from support.waiting import until

pytestmark = [needs_tmux, pytest.mark.pty]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("questions")
    state = folder / "state"
    state.mkdir()
    project = Desk(approvals_project(folder / "p"), state, cast(Any, None))
    with project.serving():
        yield project


@contextmanager
def chat(fleet: Desk, *arguments: str, stdin: str = "") -> Iterator[Terminal]:
    command = shlex.join(fleet.command(*arguments)) + stdin
    with terminal(
        f"clear; {command}; echo left with $?", cwd=fleet.state, environment=fleet.environment()
    ) as shown:
        yield shown


@pytest.mark.slow
def test_a_call_is_allowed_and_refused_where_the_answer_is_awaited(fleet: Desk) -> None:
    before = len(effects(fleet.root))
    with chat(fleet, "front") as shown:
        shown.until("/help lists commands", "front>")
        shown.type("have it noted")
        shown.keys("Enter")
        shown.until("front > office > clerk asks before it calls shelf__note", '"text": "it"', "[a]lways in")
        assert len(effects(fleet.root)) == before
        shown.type("perhaps")
        shown.keys("Enter")
        shown.until("perhaps", "allow it?")
        shown.type("y")
        shown.keys("Enter")
        shown.until("(accepted)", "noted it", "front>")
        assert len(effects(fleet.root)) == before + 1
        shown.keys("C-l")
        shown.until("allow it?", gone=True)
        shown.type("have it noted")
        shown.keys("Enter")
        shown.until("allow it?", "front > office > clerk")
        shown.type("n")
        shown.keys("Enter")
        shown.until("(refused)", "A person declined this call")
        assert len(effects(fleet.root)) == before + 1


@pytest.mark.slow
def test_one_message_asks_on_the_terminal_and_says_where_to_answer_without_one(fleet: Desk) -> None:
    before = len(effects(fleet.root))
    with chat(fleet, "clerk", "-m", "note it") as shown:
        shown.until("clerk asks before it calls shelf__note", "allow it?")
        shown.type("y")
        shown.keys("Enter")
        shown.until("noted it", "left with 0")
        assert len(effects(fleet.root)) == before + 1
    with chat(fleet, "clerk", "-m", "note it", stdin=" < /dev/null") as shown:
        screen = shown.until(
            "clerk asks before it calls shelf__note", "the run waits: answer with `pallas answer q-"
        )
        assert "allow it?" not in screen
        (question,) = fleet.ask("GET", "/questions")["items"]
        fleet.ask("POST", f"/questions/{question['id']}/answer", {"action": "decline"})
        shown.until("(refused by", "A person declined this call", "left with 0")


@pytest.mark.slow
def test_a_question_that_is_answered_elsewhere_is_no_longer_asked(fleet: Desk) -> None:
    before = len(effects(fleet.root))
    with chat(fleet, "clerk", "-m", "note it") as shown:
        shown.until("allow it?")
        shown.type("y")  # not entered: it is not the answer
        (question,) = fleet.ask("GET", "/questions")["items"]
        fleet.ask("POST", f"/questions/{question['id']}/answer", {"action": "decline"})
        shown.until("(refused by", "left with 0")
        assert len(effects(fleet.root)) == before


@pytest.mark.slow
def test_an_interrupt_at_the_question_ends_the_run_and_withdraws_it(fleet: Desk) -> None:
    with chat(fleet, "clerk", "-m", "note it") as shown:
        shown.until("allow it?")
        shown.keys("C-c")
        shown.until("left with 130")
    asyncio.run(until(lambda: not fleet.ask("GET", "/questions")["items"]))
