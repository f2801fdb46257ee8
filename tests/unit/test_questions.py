"""Questions to people: who may answer, what counts, and what is written down; in memory and in a ledger."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time
from typing import Any

import pytest
from support.databases import SQLITE_FIRST, fresh_database
from support.waiting import poll, until

from pallas.access.grants import Grants
from pallas.ledger import open_ledger
from pallas.model import ANONYMOUS, Event, Fault, Principal, QuestionAnswered, QuestionAsked
from pallas.model.canonical_json import canonical
from pallas.model.questions import AGAIN, AuditRecord, Question, QuestionAnswer, call_digest
from pallas.questions import question_records
from pallas.questions.form_schema import clean_schema
from pallas.questions.question_events import audit_entry
from pallas.questions.question_form import message_of, schema_of
from pallas.questions.questions import MAX_OPEN_OF_RUN, Questions

ANNA, BEN = Principal("token:anna"), Principal("token:ben")
YES, NO = QuestionAnswer("accept"), QuestionAnswer("decline")


@dataclass
class Run:
    """A run in flight."""

    id: str
    agent: str
    thread: str = ""
    within: str = ""
    above: tuple[str, ...] = ()
    owner: str = ANNA.id
    goes_on_elsewhere: bool = False
    events: list[Event] = field(default_factory=list)
    paused: int = 0

    def emit(self, event: Event) -> None:
        """Keep it."""
        self.events.append(event)

    def pause(self) -> None:
        """Count it."""
        self.paused += 1

    def unpause(self) -> None:
        """Count it."""
        self.paused -= 1


@dataclass
class Desk:
    """Questions of three runs, one below the other."""

    runs: tuple[Run, ...]  # innermost first
    questions: Questions

    def asking(self, **fields: Any) -> asyncio.Task[Question]:
        """A call that waits for its approval."""
        call = {"run_id": "r3", "tool": "crm__delete", "arguments": {"id": 1}, "call_id": "c1"}
        call |= {"goes_on": True} | fields
        return asyncio.create_task(self.questions.approve(**call))

    async def open(self) -> Question:
        """The one question that waits."""
        return (await until(lambda: self.questions.open_of("r1")))[0]


@pytest.fixture(params=["memory", *SQLITE_FIRST])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """Their questions are kept in memory, in SQLite, or in PostgreSQL."""
    runs = (
        Run("r3", "clerk", within="r2", above=("front", "office")),
        Run("r2", "office", within="r1", above=("front",)),
        Run("r1", "front", thread="t1"),
    )
    questions = Questions(lambda run_id: runs[[each.id for each in runs].index(run_id) :])
    async with AsyncExitStack() as stack:
        if request.param != "memory":
            url = f"sqlite:///{tmp_path}/ledger.sqlite3"
            if request.param != "sqlite":
                url = await stack.enter_async_context(fresh_database(request.getfixturevalue("postgres")))
            ledger = await open_ledger(url)
            stack.push_async_callback(ledger.close)
            questions.records = ledger.questions
        yield Desk(runs, questions)
        await questions.close()


async def test_a_call_is_made_once_for_each_yes(desk: Desk) -> None:
    asking = desk.asking()
    question = await desk.open()
    assert (question.owner, question.root, question.thread) == (ANNA.id, "r1", "t1")
    assert question.agents == ("front", "office", "clerk")
    assert [run.paused for run in desk.runs] == [1, 1, 1]
    await desk.questions.answer(question.id, YES, ANNA)
    ended = await asking
    assert ended.is_accepted
    assert ended.used
    assert [run.paused for run in desk.runs] == [0, 0, 0]
    again = desk.asking()
    assert (await desk.open()).id != question.id
    again.cancel()


async def test_every_run_above_hears_of_the_question_and_of_its_answer(desk: Desk) -> None:
    asking = desk.asking()
    question = await desk.open()
    await desk.questions.answer(question.id, NO, ANNA)
    assert (await asking).action == "decline"
    for number, run in enumerate(desk.runs):
        asked, answered = run.events
        assert isinstance(asked, QuestionAsked)
        assert isinstance(answered, QuestionAnswered)
        assert (asked.run_id, asked.agent, asked.relayed) == (run.id, run.agent, number > 0)
        assert (answered.question, answered.action, answered.by) == (question.id, "decline", "token:anna")


async def test_who_is_not_asked_does_not_find_the_question(desk: Desk) -> None:
    asking = desk.asking()
    question = await desk.open()
    for stranger in (BEN, ANONYMOUS):
        with pytest.raises(Fault) as refused:
            await desk.questions.answer(question.id, YES, stranger)
        assert refused.value.data["reason"] == "not_found"
        assert not (await desk.questions.list(stranger)).items
    with pytest.raises(Fault) as looks:
        await desk.questions.answer(question.id, YES, Principal("control:read"))
    assert looks.value.data["reason"] == "forbidden"
    assert not asking.done()
    asking.cancel()


async def test_a_question_is_answered_once(desk: Desk) -> None:
    asking = desk.asking()
    question = await desk.open()
    answers = (desk.questions.answer(question.id, each, ANNA) for each in (NO, YES, YES))
    found = await asyncio.gather(*answers, return_exceptions=True)
    (counts,) = (each for each in found if isinstance(each, Question))
    others = [each for each in found if isinstance(each, Fault)]
    assert [each.data["reason"] for each in others] == ["conflict"] * 2
    assert (await asking).action == counts.action


async def test_nobody_there_means_no(desk: Desk) -> None:
    desk.questions.adopt(Grants, lambda: 0.05)
    ended = await desk.asking()
    assert (ended.state, ended.answered_by) == ("expired", "deadline")
    with pytest.raises(Fault, match="its time was over"):
        await desk.questions.answer(ended.id, YES, ANNA)


async def test_always_holds_for_this_tool_in_this_thread(desk: Desk) -> None:
    asking = desk.asking()
    always = QuestionAnswer("accept", always=True)
    await desk.questions.answer((await desk.open()).id, always, ANNA)
    first = await asking
    second = await desk.asking(call_id="c2", arguments={"id": 2})
    assert second.id == first.id
    other = desk.asking(tool="crm__purge", call_id="c3")
    assert (await desk.open()).tool == "crm__purge"
    other.cancel()


async def test_an_approval_holds_for_the_arguments_that_were_shown(desk: Desk) -> None:
    asking = desk.asking()
    question = await desk.open()
    await desk.questions.records.end(
        _accepted(question), _entry_of(question)
    )  # the answer came while its run was away
    asking.cancel()
    changed = desk.asking(arguments={"id": 2})
    shown = await until(lambda: [q for q in desk.questions.open_of("r1") if q.id != question.id])
    assert shown[0].digest != question.digest
    changed.cancel()
    assert (await desk.asking()).id == question.id


async def test_a_cancelled_run_withdraws_its_question_unless_another_fleet_goes_on(desk: Desk) -> None:
    asking = desk.asking()
    question = await desk.open()
    asking.cancel()
    await asyncio.wait({asking})
    await until(lambda: _is_over(desk, question))
    desk.runs[0].goes_on_elsewhere = True
    moving = desk.asking(call_id="c9")
    left = await desk.open()
    moving.cancel()
    await asyncio.wait({moving})
    await desk.questions.close()
    assert [each.id for each in (await desk.questions.list(ANNA)).items] == [left.id]
    found = desk.asking(call_id="c9")
    assert (await desk.open()).id == left.id
    await desk.questions.answer(left.id, YES, ANNA)
    assert (await found).used


class Slow(question_records.MemoryRecords):
    """Stores a question, and takes long to say so."""

    async def add(self, question: Question, audit: AuditRecord) -> None:
        """Never return."""
        await super().add(question, audit)
        await asyncio.Event().wait()


async def test_a_run_that_is_cancelled_while_it_asks_leaves_no_open_question() -> None:
    run = Run("r3", "clerk")
    desk = Desk((run,), Questions(lambda _: (run,)))
    desk.questions.records = Slow()
    for elsewhere in (False, True):
        run.goes_on_elsewhere = elsewhere
        asking = desk.asking(call_id=f"c{elsewhere}", goes_on=False)
        question = (await poll(desk.questions.records.list, lambda page: page.items)).items[0]
        asking.cancel()
        await asyncio.wait({asking})
        await desk.questions.close()
        found = await desk.questions.records.get(question.id)
        assert found is not None
        assert found.is_open is elsewhere


async def test_a_question_whose_fleet_died_is_over_after_its_time(desk: Desk) -> None:
    asking = desk.asking()
    question = await desk.open()
    left = replace(question, id="q-left", run_id="gone", expires_at=time() - 3600)
    await desk.questions.records.add(left, audit_entry(left, "clerk", "asked"))
    await desk.questions.tidy()
    found = await desk.questions.records.get("q-left")
    assert found is not None
    assert (found.state, found.answered_by) == ("expired", "deadline")
    assert await desk.open() == question
    asking.cancel()


async def test_the_audit_log_says_who_and_what_and_no_arguments(desk: Desk) -> None:
    asking = desk.asking(arguments={"password": "hunter2", "id": 1})
    question = await desk.open()
    assert "hunter2" not in question.arguments
    await desk.questions.answer(question.id, YES, ANNA)
    await asking
    entries = (await desk.questions.audit(Principal("control:full"))).items
    assert [(each.who, each.what) for each in entries] == [
        ("clerk", "used"),
        (ANNA.id, "accept"),
        ("clerk", "asked"),
    ]
    assert {each.digest for each in entries} == {question.digest}
    assert "hunter2" not in repr(entries)
    with pytest.raises(Fault):
        await desk.questions.audit(ANNA)


async def test_a_form_is_filled_by_its_schema(desk: Desk) -> None:
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
    asking = asyncio.create_task(
        desk.questions.form(run_id="r3", message="Which \x1b[31msize?", schema=schema, server="shop")
    )
    question = await desk.open()
    assert "\x1b" not in question.message
    for content in ({}, {"size": "large"}, {"size": 1, "more": "x" * 70_000}):
        with pytest.raises(Fault, match="content"):
            await desk.questions.answer(question.id, QuestionAnswer("accept", content), ANNA)
    await desk.questions.answer(question.id, QuestionAnswer("accept", {"size": 3}), ANNA)
    assert (await asking).content == {"size": 3}


@pytest.mark.parametrize("tool", ["crm__get\nIt reads.", "crm__\x1b[8mdrop", "crm__\u202eteg", "x" * 500])
async def test_a_tool_whose_name_is_shown_otherwise_is_not_asked_about(tool: str) -> None:
    run = Run("r3", "clerk")
    desk = Desk((run,), Questions(lambda _: (run,)))
    with pytest.raises(Fault, match="cannot be shown"):
        await desk.asking(tool=tool)
    assert not desk.questions.open_here


async def test_a_run_asks_only_so_much_at_a_time(desk: Desk) -> None:
    asked = [desk.asking(call_id=f"c{number}") for number in range(MAX_OPEN_OF_RUN)]
    await until(lambda: len(desk.questions.open_here) == MAX_OPEN_OF_RUN)
    with pytest.raises(Fault, match="too many questions"):
        await desk.asking(call_id="one more")
    for each in asked:
        each.cancel()
    await asyncio.wait(asked)
    await desk.questions.close()


async def test_pages_of_questions_follow_each_other(desk: Desk) -> None:
    asked = [desk.asking(call_id=f"c{number}") for number in range(3)]
    await until(lambda: len(desk.questions.open_here) == 3)
    first = await desk.questions.list(ANNA, limit=2)
    rest = await desk.questions.list(ANNA, limit=2, cursor=first.next)
    assert len({each.id for each in (*first.items, *rest.items)}) == 3
    assert not rest.next
    for each in asked:
        each.cancel()
    await asyncio.wait(asked)
    await desk.questions.close()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "\u20ac\n"]}, '{"a":[true,null,"€\\n"],"b":1}'),
        ({"\ufb33": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\ufb33":1}'),
        ([1e30, 4.5, 2e-3, 1e-27, -0.0, 333333333.33333329], "[1e+30,4.5,0.002,1e-27,0,333333333.3333333]"),
        ([1e21, 1e20, 1e-7, 123456.0], "[1e+21,100000000000000000000,1e-7,123456]"),
    ],
)
def test_the_digest_is_of_the_canonical_form(value: Any, text: str) -> None:
    assert canonical(value) == text


def test_the_digest_tells_tools_and_arguments_apart() -> None:
    digests = {
        call_digest("a__b", {}),
        call_digest("a__c", {}),
        call_digest("a__b", {"x": 1}),
        call_digest("a__b", {"x": "1"}),
    }
    assert len(digests) == 4
    assert call_digest("a__b", {"x": 1, "y": 2}) == call_digest("a__b", {"y": 2, "x": 1})
    for bad in ({"x": float("nan")}, {"x": object()}):
        with pytest.raises(ValueError, match="JSON"):
            call_digest("a__b", bad)


async def _is_over(desk: Desk, question: Question) -> bool:
    found = await desk.questions.records.get(question.id)
    return found is not None and found.state == "withdrawn"


def _accepted(question: Question) -> Question:
    return replace(question, state="answered", action="accept", answered_by=ANNA.id, answered_at=time())


def _entry_of(question: Question) -> Any:
    return audit_entry(question, ANNA.id, "accept")


async def test_always_is_that_of_the_handler_that_called(desk: Desk) -> None:
    asking = desk.asking(agent="drawer")
    question = await desk.open()
    assert question.agents == ("front", "office", "clerk", "drawer")
    await desk.questions.answer(question.id, QuestionAnswer("accept", always=True), ANNA)
    assert (await asking).always
    assert (await desk.asking(agent="drawer", call_id="c2")).is_accepted
    for others in ("shelf", ""):
        other = desk.asking(agent=others, call_id="c3")
        assert (await desk.open()).agent == (others or "clerk")
        other.cancel()
        await until(lambda: not desk.questions.open_of("r1"))


async def test_whether_a_lost_call_is_made_again_is_asked_each_time(desk: Desk) -> None:
    always = QuestionAnswer("accept", always=True)
    asking = desk.asking()
    await desk.questions.answer((await desk.open()).id, always, ANNA)
    assert (await asking).always
    for call_id in ("c1", "c2"):
        again = desk.asking(call_id=f"{call_id}{AGAIN}", tool="crm__delete")
        question = await desk.open()
        assert "always" not in str(schema_of(question))
        await desk.questions.answer(question.id, always, ANNA)
        ended = await again
        assert ended.is_accepted
        assert not ended.always


def test_a_form_has_a_size_and_numbers_of_json() -> None:
    for fields in (
        {"size": {"type": "number", "maximum": float("inf")}},
        {"size": {"type": "number", "default": float("nan")}},
        {f"f{number}": {"type": "string", "description": "x" * 1_900} for number in range(40)},
        {f"f{number}{'x' * 1_900}": {"type": "string"} for number in range(40)},
    ):
        with pytest.raises(Fault, match="cannot be used"):
            clean_schema({"type": "object", "properties": fields})


class SomeApprover(Grants):
    """Everyone may answer for the clerk."""

    def allows(self, principal: Principal, verb: Any, resource: str, name: str = "") -> bool:
        """Whether it is about the clerk."""
        return name == "clerk"

    def may_approve_some(self, principal: Principal) -> bool:
        """Yes."""
        return True


async def test_a_page_has_no_more_than_its_limit_for_who_may_answer_for_some_agents() -> None:
    questions = Questions(lambda _: ())
    grants = SomeApprover()
    questions.adopt(lambda: grants, lambda: 60.0)
    for number, agent in enumerate(["clerk", "clerk", "clerk", "other", "clerk"]):
        question = Question(f"q-{number}", "approval", "r1", agent, owner=ANNA.id, asked_at=float(number))
        await questions.records.add(question, _entry_of(question))
    first = await questions.list(BEN, limit=3)
    assert [each.id for each in first.items] == ["q-4", "q-2", "q-1"]
    second = await questions.list(BEN, limit=3, cursor=first.next)
    assert [each.id for each in second.items] == ["q-0"]


async def test_open_questions_stay_in_memory_longer_than_those_that_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(question_records, "MAX_IN_MEMORY", 2)
    records = question_records.MemoryRecords()
    base = Question("q-1", "approval", "r1", "clerk")
    await records.add(base, _entry_of(base))
    over = replace(base, id="q-2")
    await records.add(over, _entry_of(over))
    assert await records.end(_accepted(over), _entry_of(over))
    new = replace(base, id="q-3")
    await records.add(new, _entry_of(new))
    assert [each.id for each in (await records.list(state=None)).items] == ["q-3", "q-1"]


def test_no_argument_is_left_out_behind_a_long_one() -> None:
    arguments = json.dumps({"note": "x" * 15_000, "then": "delete all"})
    shown = message_of(Question("q-1", "approval", "r1", "clerk", tool="crm__note", arguments=arguments))
    assert "delete all" in shown
    assert "more characters" in shown
