"""In whatever order answers, deadlines, cancels, kills and restarts come: no call is made without a yes."""

import asyncio
from dataclasses import dataclass, field, replace
from time import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.properties import examples

from pallas.model import ANONYMOUS, Event, Fault, Principal
from pallas.model.questions import AuditRecord, QuestionAnswer, call_digest
from pallas.questions.question_events import audit_entry
from pallas.questions.question_records import MemoryRecords
from pallas.questions.questions import Questions

OWNER, STRANGER = Principal("token:owner"), Principal("token:stranger")
CALLS = ({"id": 1}, {"id": 2})
# What happens most stands here more often.
STEPS = ("call",) * 4 + ("accept",) * 4 + ("kill",) * 3 + ("twin", "decline", "stranger", "expire", "cancel")
TOOL = "crm__delete"


@dataclass
class Run:
    """The run that calls."""

    id: str = "r"
    agent: str = "clerk"
    thread: str = "t"
    within: str = ""
    above: tuple[str, ...] = ()
    owner: str = OWNER.id
    goes_on_elsewhere: bool = False
    events: list[Event] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        """Forget it."""

    def pause(self) -> None:
        """Nothing."""

    def unpause(self) -> None:
        """Nothing."""


class World:
    """One run that calls a tool, its fleets one after the other, and what people said."""

    def __init__(self) -> None:
        self.run = Run()
        self.questions = Questions(lambda _: (self.run,))
        self.former: list[Questions] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.made: list[str] = []
        self.allowed: list[str] = []
        self.calls: list[tuple[int, str]] = []
        self.always = False
        self.count = 0

    def call(self, number: int, call_id: str = "") -> None:
        """The model makes a call: it waits for its approval, then it is made."""
        self.count += not call_id
        whole = call_id or f"c{self.count}"
        if not call_id:
            self.calls.append((number, whole))
        self.tasks.append(asyncio.create_task(self._call(self.questions, CALLS[number], whole)))

    async def _call(self, questions: Questions, arguments: dict[str, int], call_id: str) -> None:
        try:
            found = await questions.approve(
                run_id="r", tool=TOOL, arguments=arguments, call_id=call_id, goes_on=True
            )
        except Fault:
            return
        if found.is_accepted:
            self.made.append(call_digest(TOOL, arguments))

    async def answer(self, answer: QuestionAnswer, who: Principal) -> None:
        """Somebody answers the oldest question."""
        if not (found := self.questions.open_here):
            return
        try:
            done = await self.questions.answer(found[0].id, answer, who)
        except Fault:
            return
        assert who is OWNER
        for each in self.former:
            each.hear_answer(done)
        if done.action == "accept":
            self.allowed.append(done.digest)
            self.always = self.always or done.always

    async def expire(self) -> None:
        """The time of the oldest question is over."""
        if not (found := self.questions.open_here):
            return
        late = replace(found[0], expires_at=time() - 1, state="expired")
        await self.questions.records.end(late, audit_entry(late, "deadline", "expired"))
        for each in (self.questions, *self.former):
            each.hear_answer(late)

    async def stop(self, *, elsewhere: bool) -> None:
        """The run is cancelled, or its fleet is killed and another one goes on."""
        self.run.goes_on_elsewhere = elsewhere
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.run.goes_on_elsewhere = False
        for each in (self.questions, *self.former):
            await each.close()
        self._begin_fleet()
        self.tasks, self.former = [], []
        if elsewhere:
            self._call_again()

    def take_over(self) -> None:
        """Another fleet goes on, and this one does not know it yet."""
        if len(self.former) < 3:
            self.former.append(self.questions)
            self._begin_fleet()
            self._call_again()

    def _begin_fleet(self) -> None:
        records, self.questions = self.questions.records, Questions(lambda _: (self.run,))
        self.questions.records = records

    def _call_again(self) -> None:
        """Make all calls again whose results are not known, made or not."""
        for number, call_id in self.calls:
            self.call(number, call_id)

    async def step(self, what: str, number: int, pause: int) -> None:
        """Something happens."""
        match what:
            case "call":
                self.call(number)
            case "accept" | "decline":
                await self.answer(QuestionAnswer(what), OWNER)
            case "always":
                await self.answer(QuestionAnswer("accept", always=True), OWNER)
            case "stranger":
                for who in (STRANGER, ANONYMOUS):
                    await self.answer(QuestionAnswer("accept", always=True), who)
            case "expire":
                await self.expire()
            case "twin":
                self.take_over()
            case _:
                await self.stop(elsewhere=what == "kill")
        for _ in range(pause):
            await asyncio.sleep(0)
        self.check()

    def check(self) -> None:
        """Each call that was made has a yes of its own for just these arguments, unless one said always."""
        if self.always:
            assert self.allowed
            return
        for digest in set(self.made):
            assert self.made.count(digest) <= self.allowed.count(digest)


Steps = list[tuple[str, int, int]]
# A yes is used, and then the same call is made again; before it is made, or beside another one of its kind.
USED_AGAIN: Steps = [("call", 0, 3), ("accept", 0, 30), ("kill", 0, 30)]
ORDERS: tuple[Steps, ...] = (
    USED_AGAIN,
    [*USED_AGAIN, ("kill", 0, 30), ("kill", 0, 0), ("kill", 0, 30)],
    [("call", 0, 3), ("accept", 0, 0), ("kill", 0, 30), ("kill", 0, 30)],
    [("call", 0, 3), ("kill", 0, 30), ("accept", 0, 30), ("kill", 0, 30)],
    [("call", 0, 3), ("twin", 0, 3), ("accept", 0, 30)],
    [("call", 0, 3), ("call", 0, 3), ("accept", 0, 30), ("kill", 0, 30), ("kill", 0, 30)],
    [("call", 0, 3), ("call", 1, 3), ("accept", 0, 0), ("accept", 0, 30), ("kill", 0, 30)],
    [("call", 0, 3), ("decline", 0, 30), ("kill", 0, 30), ("accept", 0, 30)],
    [("call", 0, 3), ("expire", 0, 30), ("kill", 0, 30), ("accept", 0, 30)],
    [("call", 0, 3), ("cancel", 0, 30), ("accept", 0, 30)],
    [("call", 0, 3), ("stranger", 0, 30), ("kill", 0, 30)],
)


async def play(world: World, steps: Steps, *, always: bool = False) -> None:
    """Let these things happen, and look after each of them."""
    for what, number, pause in steps:
        await world.step("always" if always and what == "cancel" else what, number, pause)
    await world.stop(elsewhere=False)
    world.check()


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.sampled_from((0, 1)), st.sampled_from((0, 3, 30, 30))),
        max_size=40,
    ),
    st.booleans(),
)
@examples(300)
def test_nothing_is_called_without_a_valid_yes(steps: Steps, always: bool) -> None:
    asyncio.run(play(World(), steps, always=always))


for _order in ORDERS:
    test_nothing_is_called_without_a_valid_yes = example(_order, False)(
        test_nothing_is_called_without_a_valid_yes
    )


class Forgetful(MemoryRecords):
    """Does not remember that an approval was used."""

    async def use(self, id: str, audit: AuditRecord) -> bool:  # noqa: A002 - the word of the record
        """Say yes each time."""
        return (known := await self.get(id)) is not None and known.is_accepted


@pytest.mark.parametrize("steps", ORDERS[:5])
async def test_a_yes_that_counts_twice_is_noticed(steps: Steps) -> None:
    world = World()
    world.questions.records = Forgetful()
    with pytest.raises(AssertionError):
        await play(world, steps)
