"""How questions to people look: their list, one in a conversation, a form, none, refused."""

import json
from functools import partial
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet, step_event
from support.looks import EACH_LOOK, EACH_SIZE, Pictures, looking_at_list
from support.pane_app import still
from support.shell import IN_ASCII, screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot

from pallas.model import Fault, FaultType, MessageRecord, RunStarted, ToolEvent
from pallas.model.questions import Question

REFUND = Question(
    id="q-1",
    kind="approval",
    run_id="77aa90210b4d",
    agent="research",
    root="4f0cb7a1d2e3",
    path=("concierge",),
    thread="conv-0193a8",
    owner="token:ci",
    tool="shop__refund",
    server="shop",
    call_id="c9",
    digest="d",
    arguments=json.dumps(
        {
            "customer": "Acme GmbH",
            "invoice": "2026-05-0017",
            "amount": 120.5,
            "reason": "The invoice of May was paid twice; they want the second payment back.",
        }
    ),
    asked_at=NOON - 30,
    expires_at=NOON + 3_570,
)
FORM = Question(
    id="q-2",
    kind="form",
    run_id="77aa90210b4d",
    agent="research",
    root="4f0cb7a1d2e3",
    path=("concierge",),
    thread="conv-0193a8",
    owner="token:ci",
    server="shop",
    message="To which account should the refund go?",
    schema={
        "type": "object",
        "properties": {
            "iban": {"type": "string", "title": "IBAN"},
            "speed": {"type": "string", "enum": ["slow", "fast"], "default": "slow"},
            "letter": {"type": "boolean"},
        },
        "required": ["iban"],
    },
    asked_at=NOON - 5,
    expires_at=NOON + 295,
)
REFUSED = Question(
    id="q-3",
    kind="approval",
    run_id="90210",
    agent="engineering",
    tool="tickets__close",
    arguments='{"id": 4711}',
    asked_at=NOON - 4_000,
    state="answered",
    action="decline",
    answered_by="token:ci",
    answered_at=NOON - 3_900,
)
UNANSWERED = Question(
    id="q-4",
    kind="approval",
    run_id="90211",
    agent="engineering",
    tool="agent:research",
    arguments='{"message": "Close all of them"}',
    asked_at=NOON - 9_000,
    state="expired",
    answered_by="deadline",
    answered_at=NOON - 5_400,
)


looking = partial(looking_at_list, "questions", loaded=("refund", "Escape", "r reads"))


def fleet() -> FakeFleet:
    made = FakeFleet()
    root, run = {"run_id": REFUND.root, "agent": "concierge"}, {"run_id": REFUND.run_id, "agent": "research"}
    call = {"server": "research", "tool": "send_message", "call_id": "c1", "span_id": "p1"}
    told = "Please refund Acme what they paid twice"
    made.say(
        RunStarted(at=NOON - 40, preview=told, trace_id="t1", span_id="s1", **root),
        step_event(REFUND.root, 1, NOON - 39, seconds=0.9),
        ToolEvent(at=NOON - 38, phase="started", **call, **root),
        RunStarted(at=NOON - 37, preview="Refund 120.50", trace_id="t1", parent_span="p1", **run),
        step_event(REFUND.run_id, 1, NOON - 36, agent="research", seconds=3.0),
    )
    texts = (
        ("user", "Refund Acme 120.50 for the May invoice"),
        ("assistant", "It was paid twice. I refund it."),
    )
    made.rows[REFUND.run_id] = tuple(
        MessageRecord(str(number), "th", number, role, text, "complete", run=REFUND.run_id)  # type: ignore[arg-type]
        for number, (role, text) in enumerate(texts)
    )
    made.asked_people = {each.id: each for each in (REFUSED, UNANSWERED)}
    made.ask_people(REFUND, FORM)
    return made


@pytest.mark.slow
async def test_questions(pictures: Pictures) -> None:
    await pictures(workbench(fleet()), looking(seen="Acme GmbH"), EACH_LOOK)


@pytest.mark.slow
async def test_questions_in_ascii_without_colour(pictures: Pictures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    await pictures(workbench(fleet(), settings=IN_ASCII), looking("down", "down", seen="refused by"))


@pytest.mark.slow
async def test_the_form_of_a_question(pictures: Pictures) -> None:
    await pictures(workbench(fleet()), looking("down", "enter", seen="iban"), EACH_SIZE)


async def test_no_questions_yet(pictures: Pictures) -> None:
    await pictures(workbench(FakeFleet()), looking(seen="Escape goes"))


@pytest.mark.slow
async def test_questions_that_only_others_may_see(pictures: Pictures) -> None:
    made = fleet()
    made.kept.problem = Fault(FaultType.AUTH, "read-only: questions are shown to whoever may read texts")
    await pictures(workbench(made), looking(seen="r reads"))


@pytest.mark.slow
async def test_the_workbench_while_questions_wait(pictures: Pictures) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        app: Any = pilot.app
        await until(lambda: "question" in screen_text(app) and ":24200" in screen_text(app), pilot)
        await until(lambda: "shop__refund (" in screen_text(app), pilot)
        still(app)
        await pilot.pause()

    await pictures(workbench(fleet()), before, EACH_SIZE)
