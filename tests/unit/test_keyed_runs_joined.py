"""A caller that joins a run by its key hears of it too: of what happened before and of what happens then."""

import asyncio
from pathlib import Path

from support.executors import FakeExecutor
from support.kept import asked, kernel_on
from support.waiting import until

from pallas.executors import Emit, ExecutorTurn, TurnResult
from pallas.ledger import open_ledger
from pallas.model import Event, Message, QuestionAnswered, QuestionAsked, TextDelta, ToolEvent
from pallas.model.ids import mint
from pallas.runs.keyed_runs import KeyedRuns


async def test_a_caller_that_joins_a_run_hears_of_its_calls_questions_and_text(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        def say(event: type[Event], **values: object) -> None:
            emit(event(run_id=turn.run_id, agent=turn.agent, **values))

        say(ToolEvent, server="shop", tool="buy", phase="started", call_id="1")
        say(QuestionAsked, question="over", kind="approval")
        say(QuestionAnswered, question="over", action="accept")
        say(QuestionAsked, question="open", kind="approval")
        say(TextDelta, text="One ")
        await go_on.wait()
        say(ToolEvent, server="shop", tool="buy", phase="completed", call_id="1")
        say(TextDelta, text="two.")
        return TurnResult(("One two.",), (Message("user", turn.text), Message("assistant", "One two.")))

    ledger = await open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")
    kernel = kernel_on(ledger, FakeExecutor(answer))
    runs, heard, begun = KeyedRuns(kernel, ledger), list[Event](), list[Event]()
    request = asked("buy it", mint(), new=True)
    first = asyncio.create_task(runs.run(request, "a key", begun.append))
    await until(lambda: any(isinstance(each, TextDelta) for each in begun))
    second = asyncio.create_task(runs.run(request, "a key", heard.append))
    silent = asyncio.create_task(runs.run(request, "a key"))
    await until(lambda: any(isinstance(each, TextDelta) for each in heard))
    go_on.set()
    results = {(await each).texts for each in (first, second, silent)}
    assert results == {("One two.",)}
    assert [each.phase for each in heard if isinstance(each, ToolEvent)] == ["started", "completed"]
    assert [each.question for each in heard if isinstance(each, QuestionAsked)] == ["open"]
    assert [each for each in heard if isinstance(each, QuestionAnswered)] == []
    assert "".join(each.text for each in heard if isinstance(each, TextDelta)) == "One two."
    assert not next(iter(kernel.in_flight), None)
    await ledger.close()
