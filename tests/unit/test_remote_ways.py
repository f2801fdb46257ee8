"""How a remote agent's other side is understood: what it offers, what it says, how it is told."""

from typing import Any

import pytest
from mcp import MCPError
from mcp_types import CallToolResult, TextContent

from pallas.config.kinds import RemoteConfig
from pallas.executors import ExecutorTurn
from pallas.executors.remote.call_method import CallMethod, OfferedTool, find_call_method
from pallas.executors.remote.remote_answer import answer_of
from pallas.executors.remote.remote_credentials import Noted
from pallas.executors.remote.remote_executor import Handles
from pallas.executors.remote.remote_faults import Whom, explain, is_forgotten, of_status, reported
from pallas.executors.remote.remote_progress import MAX_LINES, Progress
from pallas.executors.remote.turn_arguments import MAX_TOLD, call_arguments
from pallas.model import (
    Event,
    Fault,
    FaultType,
    Message,
    Params,
    StepStarted,
    TextDelta,
    ToolEvent,
    Usage,
)

TEXT = {"type": "string"}
SEND = OfferedTool(
    "send_message",
    {"message": TEXT, "images": {"type": "array"}, "conversation_id": TEXT, "history": {"type": "array"}},
    ("message",),
)
HEALTH = OfferedTool("get_health", {})
WHOM = Whom("far", "http://there/mcp", False, 10.0)


def way(*offers: OfferedTool, about: str = "", speaker: str = "there", **keys: Any) -> CallMethod:
    """How those are asked."""
    return find_call_method(
        offers, RemoteConfig("http://there/mcp", **keys), speaker=speaker, instructions=about
    )


def problem(*offers: OfferedTool, **keys: str) -> str:
    """What is said where nobody can tell."""
    with pytest.raises(Fault) as raised:
        way(*offers, **keys)
    assert raised.value.type is FaultType.CONFIG
    return raised.value.message


def test_another_pallas_is_known_by_what_it_takes() -> None:
    found = way(SEND, HEALTH, speaker="scholar")
    assert (found.tool, found.memory, found.history, found.images) == (
        "send_message",
        "minted",
        "history",
        "images",
    )
    assert found.speaker == "scholar"


def test_a_virtual_server_goes_on_by_the_thread_it_returns() -> None:
    chat = OfferedTool("chat", {"message": TEXT, "threadId": TEXT, "systemAppend": {"anyOf": [TEXT]}})
    found = way(chat, speaker="agent-scholar")
    assert (found.memory, found.conversation, found.speaker) == ("returned", "threadId", "scholar")


def test_a_fast_agent_goes_on_by_its_session() -> None:
    agent = OfferedTool("helper", {"message": TEXT}, ("message",))
    found = way(agent, about="Mine. Available agent tools: `helper`.", speaker="stock-MCP-Server")
    assert (found.memory, found.speaker) == ("session", "helper")


@pytest.mark.parametrize("name", ["message", "prompt", "input", "text", "query", "question"])
def test_one_required_text_is_what_is_said(name: str) -> None:
    found = way(OfferedTool("talk_to_me", {name: TEXT, "depth": {"type": "integer"}}, (name,)), HEALTH)
    assert (found.argument, found.memory) == (name, "none")


def test_a_handle_is_given_where_one_is_taken() -> None:
    offer = OfferedTool("ask", {"question": TEXT, "session_id": TEXT}, ("question", "session_id"))
    found = way(offer)
    assert (found.memory, found.conversation, found.needs_conversation) == ("given", "session_id", True)


def test_what_is_configured_stands_before_what_is_found() -> None:
    odd = OfferedTool("say", {"words": TEXT, "tone": TEXT, "room": TEXT}, ("words",))
    found = way(SEND, odd, tool="say", conversation="room")
    assert (found.tool, found.argument, found.conversation, found.memory) == ("say", "words", "room", "given")
    assert way(odd, tool="say", argument="tone", conversation="words").argument == "tone"


def test_where_nobody_can_tell_it_is_said_what_there_is_and_which_keys_to_set() -> None:
    one, two = (OfferedTool(name, {"text": TEXT}, ("text",)) for name in ("first", "second"))
    assert "first, second" in problem(one, two) and "set tool" in problem(one, two)
    assert "get_health" in problem(HEALTH) and "set tool and argument" in problem(HEALTH)
    assert "none at all" in problem()
    assert "it has first" in problem(one, tool="third")
    assert "it takes text" in problem(one, tool="first", argument="words")
    assert "it takes text" in problem(one, tool="first", conversation="room")
    two_texts = OfferedTool("both", {"a": TEXT, "b": TEXT}, ("a", "b"))
    assert "takes a, b; set argument" in problem(two_texts, tool="both")
    assert "also needs b" in problem(two_texts, tool="both", argument="a")
    hostile = problem(OfferedTool("x\x1b[2J" + "y" * 500, {}))
    assert "\x1b" not in hostile and len(hostile) < 400


def test_of_several_tools_the_one_that_is_called_so_is_asked() -> None:
    ask, other = (OfferedTool(name, {"text": TEXT}, ("text",)) for name in ("ask", "translate"))
    assert way(other, ask).tool == "ask"


def test_a_bridge_is_asked_for_one_answer() -> None:
    offers = [
        OfferedTool("agents_discover", {"capability": TEXT}),
        OfferedTool("sessions_prompt", {"sessionId": TEXT, "prompt": TEXT}, ("sessionId", "prompt")),
        OfferedTool("tasks_delegate", {"prompt": TEXT, "runtimeParams": {}}, ("prompt",)),
    ]
    found = way(*offers)
    assert (found.tool, found.argument, found.memory) == ("tasks_delegate", "prompt", "none")
    said = CallToolResult(content=[TextContent(type="text", text='{"success": true, "text": "yes"}')])
    assert answer_of(said, found).texts == ("yes",)


def turn(text: str = "now", **more: Any) -> ExecutorTurn:
    """A turn of the agent far."""
    return ExecutorTurn("r1", "far", text, **more)


def test_history_goes_as_rows_to_a_pallas_and_as_a_marked_block_to_others() -> None:
    said = (
        Message("user", "one"),
        Message("assistant", ""),
        Message("tool", "found"),
        Message("assistant", "two"),
    )
    rows = call_arguments(way(SEND), turn(history=said, lease="id:a"), "new", knows=False)
    assert rows.arguments == {
        "message": "now",
        "conversation_id": "new",
        "history": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}],
    }
    plain = way(OfferedTool("ask", {"question": TEXT}, ("question",)))
    text = call_arguments(plain, turn(history=said), "", knows=False).arguments["question"]
    assert text.startswith("[Earlier") and text.endswith("new message:]\n\nnow")
    assert "user: one\n\nassistant: two" in text and "found" not in text
    assert call_arguments(plain, turn(history=said), "", knows=True).arguments == {"question": "now"}
    assert call_arguments(plain, turn(), "", knows=False).arguments == {"question": "now"}


def test_of_a_long_history_the_newest_is_told() -> None:
    said = tuple(Message("user", f"{number} " + "x" * 100_000) for number in range(9))
    plain = way(OfferedTool("ask", {"question": TEXT}, ("question",)))
    text = call_arguments(plain, turn(history=said), "", knows=False).arguments["question"]
    assert len(text) < MAX_TOLD + 1_000 and "user: 8 " in text and "user: 0 " not in text
    assert "left out" in text
    many = said * 6
    rows = call_arguments(way(SEND), turn(history=many), "new", knows=False).arguments["history"]
    assert 0 < len(rows) < len(many) and rows[-1]["content"].startswith("8 ")


def test_parameters_go_along_where_they_are_taken() -> None:
    params = Params({"temperature": 0.5})
    assert call_arguments(way(SEND), turn(params=params), "", knows=True).meta["local.pallas/params"] == {
        "temperature": 0.5
    }
    plain = way(OfferedTool("ask", {"question": TEXT}, ("question",)))
    assert call_arguments(plain, turn(params=params), "", knows=True) == ({"question": "now"}, {})


def test_a_message_that_no_server_takes_says_how_large_it_is() -> None:
    with pytest.raises(Fault) as raised:
        call_arguments(way(SEND), turn("x" * 5_000_000), "", knows=True)
    assert raised.value.type is FaultType.UPSTREAM and raised.value.data["limit"] == 4_194_304


def test_handles_are_good_for_what_they_know_and_bounded() -> None:
    handles, said = Handles(limit=2), (Message("user", "a"), Message("assistant", "b"))
    handles.store("id:a", "h1", 2)
    assert handles.of("id:a", said) == "h1" and handles.of("id:b", said) == ""
    assert handles.of("id:a", said[:1]) == "" and handles.of("id:a", said) == ""
    for name in "abc":
        handles.store(f"id:{name}", name, 2)
    assert len(handles) == 2 and handles.of("id:a", said) == ""
    handles.forget("id:c")
    handles.store(None, "h", 2)
    handles.store("id:d", "h" * 501, 2)
    assert len(handles) == 1


async def test_progress_becomes_events_sanitised_and_bounded() -> None:
    events: list[Event] = []
    progress = Progress(turn(stream_text=True), events.append, "scholar")
    for line in (
        "scholar step 1 (llm)",
        "echo/say\x1b[2J: started",
        "helper step 2 (tool)",
        "far step 1 (llm)",
        "scholar » hel\x1b]52;lo",
        "helper » aside",
        "scholar/agent_loop: started",
        "scholar/agent_loop: step 3 (tool echo)",
        "half way there",
    ):
        await progress.hear(1, None, line)
    progress.end()
    await progress.hear(2, None, "scholar step 9 (llm)")
    steps = [(each.actor, each.step) for each in events if isinstance(each, StepStarted)]
    assert steps == [("far", 1), ("helper", 2), ("scholar/far", 1), ("far", 3)]
    calls = [(each.phase, each.call_id) for each in events if isinstance(each, ToolEvent)]
    assert [phase for phase, _ in calls] == ["started", "failed"] and calls[0][1] == calls[1][1]
    said = [(each.actor, each.text) for each in events if isinstance(each, TextDelta)]
    assert said == [("", "hel␛]52;lo"), ("helper", "aside")]
    assert not any("\x1b" in repr(each) for each in events)

    silent = Progress(turn(), events.append, "scholar")
    events.clear()
    await silent.hear(1, None, "scholar » hello")
    assert events == []
    for _ in range(MAX_LINES + 10):
        await silent.hear(1, None, "a step 1 (llm)")
    assert len(events) <= MAX_LINES


def test_a_fault_of_another_pallas_passes_with_its_type_and_nothing_hostile() -> None:
    # DR-22
    body = (
        '{"error": "slow \\u001b[31m down, Bearer abcdefghijklmnop", "code": -32002, "data": {"type": '
        '"UPSTREAM", "retryable": true, "providerId": "openai", "upstreamCode": 429, "partial": "x", '
        '"reason": "conflict"}}'
    )
    fault = reported(body, WHOM)
    assert (fault.type, fault.code, fault.retryable) == (FaultType.UPSTREAM, -32002, True)
    assert fault.message.startswith("far: slow ␛[31m down") and "abcdefghijklmnop" not in fault.message
    assert fault.data == {"providerId": "openai", "upstreamCode": 429}
    for text in ("kaput", "[1]", '{"error": 1}', '{"error": "x", "code": "y", "data": {"type": "NEW"}}'):
        plain = reported(text, WHOM)
        assert (plain.type, plain.retryable, plain.data) == (FaultType.UPSTREAM, False, {"providerId": "far"})
    assert "without a message" in reported("  ", WHOM).message


@pytest.mark.parametrize("code", ["1e999", "1" * 400, "NaN", "-32002"])
def test_numbers_of_another_side_that_are_none_are_left_out(code: str) -> None:
    data = '"type": "UPSTREAM", "retry_after": NaN, "limit": 1e999, "size": ' + "9" * 400
    fault = reported(f'{{"error": "no", "code": {code}, "data": {{{data}}}}}', WHOM)
    assert (fault.type, fault.code) == (FaultType.UPSTREAM, -32002)
    assert not {"retry_after", "limit", "size"} & fault.data.keys()


@pytest.mark.parametrize("said", [["UPSTREAM"], {"a": 1}, None, 7])
def test_an_error_whose_type_is_none_is_one_all_the_same(said: Any) -> None:
    error = MCPError(-32099, "odd", data={"type": said})
    assert explain(error, Noted(), WHOM).type is FaultType.PROTOCOL


def test_a_conversation_that_is_gone_is_told_from_other_errors() -> None:
    gone = '{"error": "nothing", "code": -32002, "data": {"type": "UPSTREAM", "reason": "not_found"}}'
    assert is_forgotten(gone) and is_forgotten("Unknown thread: 12") and is_forgotten("session expired")
    assert not is_forgotten("file not found") and not is_forgotten("[]") and not is_forgotten("kaput")


def test_a_wait_that_is_asked_for_is_passed_on() -> None:
    noted = Noted()
    noted.status, noted.retry_after = 429, 7.0
    fault = of_status(noted, WHOM)
    assert fault is not None and fault.data["retry_after"] == 7.0
    noted.status = 200
    assert of_status(noted, WHOM) is None


def test_an_answer_is_sanitised_and_its_handle_found() -> None:
    result = CallToolResult(
        content=[TextContent(type="text", text="I look.\n\nfound \x1b[2J")],
        structured_content={"thread_id": "t1"},
        _meta={
            "local.pallas/finalOffset": 9,
            "local.pallas/usage": {"inputTokens": 3, "outputTokens": True},
            "local.pallas/cost": {"treeCost": "9000000000", "treeUnpriced": 1},
        },
    )
    offer = OfferedTool("ask", {"text": TEXT, "thread_id": TEXT}, ("text",))
    answer = answer_of(result, way(offer))
    assert answer.texts == ("I look.", "found ␛[2J") and answer.handle == "t1"
    assert answer.usage == Usage(3, None, None, unpriced=2)  # no answer costs that much
    bare = CallToolResult(content=[], structured_content={"a": 1})
    assert answer_of(bare, way(offer)).texts == ('{\n  "a": 1\n}',)
