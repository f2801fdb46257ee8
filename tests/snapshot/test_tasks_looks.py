"""How the screen of durable tasks looks: under way, asking, answered, failed, cancelled, none, refused."""

from functools import partial

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.looks import EACH_LOOK, Pictures, looking_at_list
from support.shell import IN_ASCII, workbench

from pallas.model import Fault, FaultType, TaskRecord

WORKING = TaskRecord(
    "a1" * 16,
    "concierge",
    "anonymous",
    "working",
    NOON - 95,
    NOON - 1,
    run_id="4f0cb7a1d2e3",
    kind="tasks_delegate",
    preview="Write to every customer the May bug hit",
    progress="concierge step 3 (tool)",
    ttl=604_800.0,
)
ASKING = TaskRecord(
    "b2" * 16,
    "engineering",
    "token:ci",
    "input_required",
    NOON - 600,
    NOON - 30,
    run_id="77aa",
    preview="Deploy the fix",
    request={"question-1": {"params": {"message": "It is Friday. Deploy all the same?"}}},
)
ANSWERED = TaskRecord(
    "c3" * 16,
    "research",
    "anonymous",
    "completed",
    NOON - 7_200,
    NOON - 7_000,
    run_id="90210",
    thread="01jx8zq3m5v7",
    preview="Which customers were hit by the May invoice bug?",
    text="Three customers were hit:\n\n- Acme\n- Globex\n- Initech",
    ttl=604_800.0,
)
FAILED = TaskRecord(
    "d4" * 16,
    "vision",
    "bearer:9f31c2",
    "failed",
    NOON - 90_000,
    NOON - 89_990,
    preview="What is on these forty pictures?",
    fault=Fault(FaultType.UPSTREAM, "the provider is busy; try again in a minute", retryable=True).to_body(),
)
STOPPED = TaskRecord(
    "e5" * 16, "research", "anonymous", "cancelled", NOON - 300_000, NOON - 299_000, preview="never mind"
)


looking = partial(looking_at_list, "tasks", loaded=("Deploy", "Escape", "r reads"))


def fleet() -> FakeFleet:
    made = FakeFleet()
    made.works = {each.id: each for each in (WORKING, ASKING, ANSWERED, FAILED, STOPPED)}
    return made


@pytest.mark.slow
async def test_tasks(pictures: Pictures) -> None:
    before = looking("down", "down", seen="Three customers were hit")
    await pictures(workbench(fleet()), before, EACH_LOOK)


async def test_tasks_in_ascii_without_colour(pictures: Pictures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    before = looking("end", "up", seen="the provider is busy")
    await pictures(workbench(fleet(), settings=IN_ASCII), before)


async def test_no_tasks_yet(pictures: Pictures) -> None:
    await pictures(workbench(FakeFleet()), looking(seen="Escape goes"))


async def test_tasks_that_only_others_may_see(pictures: Pictures) -> None:
    made = fleet()
    made.kept.problem = Fault(FaultType.AUTH, "read-only: tasks are shown to whoever holds the full token")
    await pictures(workbench(made), looking(seen="r reads"))
