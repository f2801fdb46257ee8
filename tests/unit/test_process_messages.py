"""What a fleet and an agent's process say to each other comes out as it went in, and shows no secret."""

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from support.live import ECHO, agent_module, write_project

from pallas.config import load_project
from pallas.executors import ExecutorInfo, ExecutorTurn
from pallas.executors.fastagent.peer_tools import PeerTool
from pallas.executors.ipc.child_messages import (
    FROM_CHILD,
    FROM_FLEET,
    CallCancelled,
    CancelCall,
    ChildHello,
    CloseChild,
    DropQuestion,
    FleetHello,
    FormAnswer,
    ForwardedRecord,
    MessageDecoder,
    encode_message,
)
from pallas.executors.ipc.people_questions import PeopleQuestion
from pallas.executors.process.agent_messages import (
    FROM_AGENT,
    TO_AGENT,
    AgentBroken,
    AgentCallFailed,
    AgentCommand,
    AgentNoticed,
    AgentSetup,
    AgentTurn,
    CallReturned,
    CommandDone,
    ExchangeUpdate,
    ExecutorState,
    ForgetThread,
    HistoryMessage,
    HistoryPart,
    JournalQuestion,
    LimitQuestion,
    LimitSettled,
    PeerList,
    PeerQuestion,
    ReplayQuestion,
    RunEventMessage,
    ServerOffered,
    StepUpdate,
    TurnAnswer,
    TurnMessages,
    UnreachedServers,
)
from pallas.executors.process.process_executor import ProcessExecutor
from pallas.limits.meter import ModelCall, ModelUse
from pallas.model import (
    Exchange,
    Fault,
    FaultType,
    Image,
    Step,
    StepAttempt,
    StepDetail,
    StepUsage,
    TextDelta,
    TraceContext,
    Usage,
)
from pallas.model.codec import Undecodable, dumps, encode_event, loads

decoded = MessageDecoder(*FROM_FLEET, *TO_AGENT, *FROM_CHILD, *FROM_AGENT)
ENTRY = HistoryMessage("tool", "found", (Image("QUJD", "image/png"),), '{"role": "user"}')
SAID: tuple[Any, ...] = (
    AgentCommand(1, "park", 2.5),
    HistoryPart(1, (ENTRY,)),
    HistoryPart(1, (ENTRY,), said=True),
    AgentTurn(
        2,
        ExecutorTurn(
            "r1", "frail", "hello", (Image("QUJD", "image/png"),), [], "id:x", principal="bearer:ab",
            stream_text=True, bearer="token", said=[],
        ),
        3, TraceContext("0" * 31 + "1", "0" * 15 + "1", "01", "a=b", "c=d"), True, scope="id:x",
    ),
    FleetHello("1.0", 1),
    CancelCall(2),
    CloseChild(2.5),
    CallCancelled(2),
    ForgetThread("id:x", over=True),
    ChildHello("1.0", 1, 4711),
    CommandDone(1, ExecutorInfo(servers=("a", "b"), providers=("p",), models=("p.m",), names_models=True)),
    AgentCallFailed(1, Fault(FaultType.CONFIG, "x.py:3: no", data={"place": "x.py:3"}).to_body(), "trace"),
    TurnMessages(2, (ENTRY,)),
    TurnAnswer(2, ("one", "two"), Usage(1, None), "endTurn", False),
    RunEventMessage(2, encode_event(TextDelta(run_id="r1", agent="frail", text="w", at=1.5))),
    ExchangeUpdate(2, 1, Exchange("r1", 1.0, "downstream", "echo", "call", request_headers=(("a", "b"),))),
    StepUpdate(
        2,
        StepDetail(
            Step("r1", 1, "model", "m", 1.0, attempts=(StepAttempt(1.0, 200),), usage=StepUsage(3, 2)),
            '{"model": "m"}',
            '{"choices": []}',
            (("content-type", "application/json"),),
        ),
        (Image("QUJD", "image/png"),),
    ),
    ForwardedRecord({"level": "INFO", "message": "x", "nested": {"a": [1, None]}}),
    ExecutorState(3, ("echo",)),
    AgentBroken("its harness ended"),
    AgentNoticed("warning", "server echo is missing", "echo"),
    PeerList((PeerTool("adder", "adder", "Adds", {"type": "object"}),)),
    PeerQuestion(2, 7, "adder", '{"a": 1}', "0" * 15 + "2"),
    JournalQuestion(2, 9, "still_ours"),
    CallReturned(2, "call-1", '{"content": []}'),
    LimitQuestion(2, 10, ModelCall("openai", "gpt", size=900, images=1, max_output=50, url="https://x.example")),
    LimitSettled(2, 10, ModelUse(StepUsage(input=4, output=2), "gpt", "https://x.example", written=8)),
    ReplayQuestion(2, 12, 3, "https://x.example", {"error": "no such call"}),
    PeopleQuestion(2, 11, "approval", tool="shop__refund", call_id="c1", arguments={"amount": 9}),
    DropQuestion(7),
    UnreachedServers(("echo",)),
    ServerOffered("echo", '{"server": "echo"}'),
    FormAnswer(7, "3"),
    FormAnswer(8, fault=Fault(FaultType.PROTOCOL, "Add.a is missing").to_body()),
)  # fmt: skip


@pytest.mark.parametrize("said", SAID, ids=lambda said: type(said).__name__)
def test_a_message_comes_out_as_it_went_in(said: Any) -> None:
    assert decoded(loads(dumps(encode_message(said)))) == said


def test_every_kind_of_message_is_tried() -> None:
    assert {type(each).__name__ for each in SAID} | {"AgentSetup"} == set(decoded.kinds)


def test_a_whole_project_comes_out_as_it_went_in(tmp_path: Path) -> None:
    root = write_project(
        tmp_path,
        {"one": agent_module("one", ("echo",)), "two": None},
        config={**ECHO, "generic": {"api_key": "sk-secret-0123456789"}},
        keys={"one": {"isolation": "process", "depends_on": ["two"], "model_capabilities": {"vision": True}}},
        top={
            "servers": {"up": {"command": ["sleep", "1"], "url": "http://127.0.0.1:9/x", "env": {"A": "b"}}}
        },
    )
    project = load_project(root, {**os.environ})
    setup = AgentSetup("one", project, "00ff")
    came = decoded(loads(dumps(encode_message(setup))))
    assert came.project == project
    for field in dataclasses.fields(project):  # some are left out of a comparison
        assert getattr(came.project, field.name) == getattr(project, field.name), field.name
    assert "sk-secret" not in repr(setup)
    assert "00ff" not in repr(setup)


def test_no_message_shows_a_bearer_or_what_was_said() -> None:
    run = next(each for each in SAID if isinstance(each, AgentTurn))
    parts = tuple(each for each in SAID if isinstance(each, HistoryPart | TurnMessages))
    assert len(parts) == 3
    shown = repr((run, *parts))
    for hidden in ("token", "hello", "QUJD", "found"):
        assert hidden not in shown


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"say": "Nothing"},
        {"say": "AgentCommand"},
        {"say": "ChildHello", "version": [], "protocol": 1},
    ],
)
def test_what_is_no_message_is_refused(document: Any) -> None:
    with pytest.raises(Undecodable):
        decoded(document)


def test_a_process_is_told_neither_who_may_call_nor_of_other_agents(tmp_path: Path) -> None:
    sha = hashlib.sha256(b"zL8-not-to-be-guessed-4711").hexdigest()
    root = write_project(
        tmp_path,
        {"one": None, "two": None},
        keys={
            "one": {"isolation": "process", "auth": {"tokens": ["bob"]}, "env": {"MINE": "${OF_ONE}"}},
            "two": {"isolation": "process", "env": {"ITS": "${OF_TWO}"}},
        },
        top={"auth": {"tokens": {"bob": {"sha256": sha}}}},
    )
    project = load_project(root, {**os.environ, "OF_ONE": "value-of-one", "OF_TWO": "value-of-two"})
    assert project.agents["one"].auth is not None
    executor = ProcessExecutor(project, project.agents["one"])
    told = dumps(
        encode_message(AgentSetup("one", executor._project_of_agent({"MINE": "value-of-one"}), "00"))
    ).decode()
    assert sha not in told
    assert "two" not in told
    assert "agents.one" in told
