"""A process asks its agent's peers over the channel: who is answered, what is cancelled, what is refused."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.waiting import until

from pallas.executors import Emit, ExecutorTurn
from pallas.executors.fastagent.peer_tools import PeerTool
from pallas.executors.ipc.child_messages import DropQuestion, FormAnswer, MessageDecoder, encode_message
from pallas.executors.ipc.child_questions import ChildQuestions, QuestionsToFleet
from pallas.executors.process.agent_messages import PeerList, PeerQuestion
from pallas.executors.process.peer_questions import MAX_OPEN, PeerAnswers, PeerAsker, PeersThroughFleet
from pallas.model import Event, Fault, FaultType, TraceContext

TOOL = PeerTool("adder", "Add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}}, True)
TURN = ExecutorTurn("run1", "desk", "x")
OWN = TraceContext("0" * 31 + "1", "1" * 16)


decoded = MessageDecoder(FormAnswer, DropQuestion, PeerList, PeerQuestion)


@dataclass
class Calls:
    """Peers that answer when they are let."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[tuple[str, str, TraceContext | None]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    now: tuple[PeerTool, ...] = (TOOL,)

    def tools(self) -> tuple[PeerTool, ...]:
        return self.now

    async def ask(
        self,
        peer: str,
        text: str,
        turn: ExecutorTurn,
        trace: TraceContext | None,
        emit: Emit,
        *,
        call_id: str = "",
    ) -> str:
        self.asked.append((peer, text, trace))
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(text)
            raise
        if text == "fail":
            raise Fault(FaultType.PROTOCOL, "a is wrong", data={"system": "validation"})
        return f"{peer}: {text}"


class Pair:
    """Both ends, with the messages between them as they travel."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.questions = ChildQuestions("desk", self.down)
        self.answers = PeerAnswers(self.calls, self.questions)
        self.to_fleet = QuestionsToFleet(self.up)
        self.peers = PeersThroughFleet(self.to_fleet)
        self.peers.begin_run("run1", 7)
        self.heard: list[Event] = []
        self.asker: PeerAsker | None = PeerAsker(TURN, OWN, self.heard.append)

    def down(self, said: FormAnswer) -> None:
        self.to_fleet.resolve(decoded(encode_message(said)))

    def up(self, said: PeerQuestion | DropQuestion) -> None:
        said = decoded(encode_message(said))
        if isinstance(said, PeerQuestion):
            assert said.call == 7
            self.answers.answer(said, self.asker)
        else:
            self.questions.cancel(said.question)

    def ask(self, text: str, **more: Any) -> asyncio.Task[str]:
        trace = TraceContext(OWN.trace_id, "2" * 16)
        turn = more.get("turn", TURN)
        return asyncio.create_task(self.peers.ask("adder", text, turn, trace, self.heard.append))


async def test_an_answer_and_a_fault_come_back_and_the_span_is_that_of_the_call() -> None:
    pair = Pair()
    one, two = pair.ask("one"), pair.ask("fail")
    await until(lambda: len(pair.calls.asked) == 2)
    pair.calls.open.set()
    assert await one == "adder: one"
    with pytest.raises(Fault, match="a is wrong") as raised:
        await two
    assert (raised.value.type, raised.value.system_code) == (FaultType.PROTOCOL, "validation")
    assert {trace for _, _, trace in pair.calls.asked} == {TraceContext(OWN.trace_id, "2" * 16)}


async def test_who_stops_waiting_cancels_what_was_asked_and_only_that() -> None:
    pair = Pair()
    one, two = pair.ask("one"), pair.ask("two")
    await until(lambda: len(pair.calls.asked) == 2)
    one.cancel()
    await until(lambda: pair.calls.cancelled == ["one"])
    pair.calls.open.set()
    assert await two == "adder: two"


async def test_the_end_of_a_run_or_of_the_process_cancels_what_it_asked() -> None:
    pair = Pair()
    one = pair.ask("one")
    await until(lambda: pair.calls.asked)
    pair.questions.end(8)
    assert pair.calls.cancelled == []
    pair.questions.end(7)
    with pytest.raises(Fault, match="cancelled"):
        await one
    assert pair.calls.cancelled == ["one"]
    two = pair.ask("two")
    await until(lambda: len(pair.calls.asked) == 2)
    pair.questions.end()
    with pytest.raises(Fault, match="cancelled"):
        await two


async def test_without_a_fleet_above_a_question_fails() -> None:
    pair = Pair()
    one = pair.ask("one")
    await until(lambda: pair.calls.asked)
    pair.to_fleet.close()
    with pytest.raises(Fault, match="the fleet has ended") as raised:
        await one
    assert raised.value.type is FaultType.TRANSPORT
    with pytest.raises(Fault, match="the fleet has ended"):
        await pair.ask("two")
    pair.questions.end()


async def test_a_question_for_no_run_and_one_too_many_are_refused() -> None:
    pair = Pair()
    with pytest.raises(Fault, match="the run is over"):
        await pair.ask("one", turn=ExecutorTurn("run2", "desk", "x"))
    pair.asker = None
    with pytest.raises(Fault, match="no run"):
        await pair.ask("one")
    pair = Pair()
    many = [pair.ask(str(number)) for number in range(MAX_OPEN)]
    await until(lambda: len(pair.calls.asked) == MAX_OPEN)
    with pytest.raises(Fault, match="open already"):
        await pair.ask("more")
    pair.calls.open.set()
    assert len(await asyncio.gather(*many)) == MAX_OPEN
    await until(lambda: not pair.questions.count())


async def test_the_process_is_told_of_peers_only_when_they_are_others() -> None:
    pair = Pair()
    assert pair.answers.update() == PeerList((TOOL,))
    assert pair.answers.update() is None
    pair.calls.now = ()
    assert pair.answers.update() == PeerList(())
    assert decoded(encode_message(PeerList((TOOL,)))) == PeerList((TOOL,))
