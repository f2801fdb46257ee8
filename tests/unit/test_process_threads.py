"""Fleet and process keep the same book of a conversation, whatever becomes of its runs."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas.executors.ipc.channel import MAX_FRAME, PART
from pallas.executors.process.thread_sync import ReceivedThreads, SentThreads, message_parts
from pallas.model import Fault, Image, Message
from pallas.model.packed import Packed, packed_of

LEASES = ("a", "b", "c", None)
# What becomes of a run: both hear of its result, only the process does (it was cancelled), it failed, or it
# stands for the whole conversation.
OUTCOMES = ("ok", "unheard", "failed", "replaces")


def said(count: int) -> tuple[Message, ...]:
    return tuple(Message("user", str(number)) for number in range(count))


@given(
    st.lists(
        st.tuples(st.sampled_from(LEASES), st.sampled_from(OUTCOMES), st.integers(0, 3), st.booleans()),
        max_size=30,
    )
)
def test_a_run_always_finds_the_thread_that_the_fleet_has(
    steps: Sequence[tuple[str | None, str, int, bool]],
) -> None:
    sent, threads = SentThreads(max_threads=2, max_size=40), ReceivedThreads[Message]()
    conversations: dict[str | None, tuple[Message, ...]] = dict.fromkeys(LEASES, ())
    for call, (lease, outcome, count, anew) in enumerate(steps):
        history = said(count) if anew else conversations[lease]
        keep = sent.begin(lease, history)
        assert lease is not None or keep == 0
        thread = threads.begin(call, lease, keep, history[keep:])
        assert [id(each) for each in thread] == [id(each) for each in history]
        made, replaces = said(count + 1), outcome == "replaces"
        if outcome != "failed":
            threads.end(call, lease, made, replaces=replaces)
        heard = made if outcome in ("ok", "replaces") else None
        for gone in sent.end(lease, history, heard, replaces=replaces):
            threads.forget(gone)
        if heard is not None:
            conversations[lease] = made if replaces else (*history, *made)


def test_a_conversation_that_goes_on_gives_nothing_twice() -> None:
    sent = SentThreads()
    history: tuple[Message, ...] = said(2)
    for turn in range(5):
        assert sent.begin("a", history) == (0 if turn == 0 else len(history))
        made = said(2)
        assert sent.end("a", history, made, replaces=False) == []
        history = (*history, *made)
    # The same words are not the same messages: another conversation may have said them.
    assert sent.begin("a", said(len(history))) == 0


def test_a_run_that_comes_late_adds_nothing_to_a_thread_that_has_gone_on() -> None:
    threads = ReceivedThreads[str]()
    threads.begin(1, "a", 0, ["one"])
    threads.begin(2, "a", 1, ["two"])
    threads.end(1, "a", ["late"], replaces=False)
    threads.end(2, "a", ["done"], replaces=False)
    assert threads.begin(3, "a", 3, []) == ["one", "two", "done"]


def test_what_a_process_keeps_is_bounded_and_never_a_conversation_that_runs() -> None:
    sent = SentThreads(max_threads=2, max_size=1_000)
    for lease in ("a", "b", "c"):
        sent.begin(lease, ())
    assert sent.end("c", (), said(1), replaces=False) == ["c"]
    assert sent.end("a", (), said(1), replaces=False) == []
    assert sent.end("b", (), (Message("user", "x" * 2_000),), replaces=False) == ["a", "b"]


def test_long_threads_travel_in_parts_and_a_message_that_fits_none_is_refused() -> None:
    big = Message("user", "x" * (PART // 2))
    parts = list(message_parts([big] * 5, complete=True))
    assert [len(part) for part in parts] == [2, 2, 1]
    picture = Message("user", "see", (Image("A" * MAX_FRAME, "image/png"),))
    with pytest.raises(Fault, match="too large for an agent in a process of its own"):
        list(message_parts([picture], complete=True))


def test_the_native_form_alone_is_given_and_the_words_where_there_is_none() -> None:
    made, brought = Message("user", "words", native=Packed('{"a": 1}')), Message("assistant", "words")
    ((first, second),) = message_parts([made, brought], complete=False)
    assert (first.native, first.text) == ('{"a": 1}', "")
    assert (second.native, second.text) == (None, "words")
    assert packed_of(made.native) == '{"a": 1}'
    assert packed_of(None) is None


async def test_a_message_of_the_agent_library_survives_the_trip() -> None:
    messages = await asyncio.to_thread(
        __import__, "pallas.executors.fastagent.message_conversion", fromlist=["x"]
    )
    from fast_agent.types import PromptMessageExtended
    from fast_agent.types.llm_stop_reason import LlmStopReason
    from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult, ImageContent, TextContent

    called = PromptMessageExtended(
        role="assistant",
        content=[TextContent(type="text", text="I look. \U0001f600")],
        tool_calls={
            "call_1": CallToolRequest(
                method="tools/call",
                params=CallToolRequestParams(name="s__t", arguments={"n": 1.5, "no": None}),
            )
        },
        stop_reason=LlmStopReason.TOOL_USE,
        channels={"reasoning": [TextContent(type="text", text="hm")]},
    )
    answered = PromptMessageExtended(
        role="user",
        content=[],
        tool_results={
            "call_1": CallToolResult(
                content=[
                    TextContent(type="text", text="found"),
                    ImageContent(type="image", data="QUJD", mime_type="image/png"),
                ],
                structured_content={"found": [1, 2]},
                is_error=False,
            )
        },
    )
    for native in (called, answered):
        entry = messages.to_message(native)
        ((piece,),) = message_parts([entry], complete=True)
        assert piece.native is not None
        back = messages.revived(Message(piece.role, piece.text, piece.images, Packed(piece.native)))
        assert type(back.native) is messages.FrozenMessage
        assert back.native == entry.native
        assert (back.role, back.text, back.images) == (entry.role, entry.text, entry.images)
        # An executor in the fleet's own process goes on with it as well.
        assert messages.natives([Message(piece.role, piece.text, native=Packed(piece.native))]) == [
            entry.native
        ]
    (spoken,) = messages.natives([Message("user", "words", native=Packed("not json"))])
    assert messages.text_of(spoken) == "words"
