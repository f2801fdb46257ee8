import pytest
from support.fake_fleet import agent

from pallas.model import AgentState, Fault, FaultType, Health, HealthStatus
from pallas_tui.chat.answer_parts import parts_of
from pallas_tui.chat.chat_readiness import ChatReadiness, readiness_of, why_no_images
from pallas_tui.chat.conversation import KEEP, ChatConversation, last_answer
from pallas_tui.chat.prompt_history import PromptHistory
from pallas_tui.chat.run_progress import LoopStep, ProgressNote, TextPiece, ToolProgress, parse
from pallas_tui.chat_client import AgentReply
from pallas_tui.mcp_faults import WANTS_CREDENTIAL
from pallas_tui.state import Tone
from pallas_tui.widgets.chat.answer_lines import shown
from pallas_tui.widgets.chat.chat_pane import front_agent

STEPS = ["Let me look.", "One more.", "Found."]
"""The texts of three steps, between which calls are made."""


def stands(found: ChatReadiness, tone: Tone, may_write: bool, words: str) -> None:
    assert (found.tone, found.may_write) == (tone, may_write)
    assert words in found.text if words else not found.text


def reply(text: str) -> AgentReply:
    return AgentReply(text=text, seconds=1.5)


@pytest.mark.parametrize(
    ("message", "meaning"),
    [
        ("docs/search: started", ToolProgress("docs/search", "started")),
        ("docs/search/deep: failed", ToolProgress("docs/search/deep", "failed")),
        ("research/research__ask: completed", ToolProgress("research/research__ask", "completed")),
        ("research step 12 (tool)", LoopStep("research", 12, "tool")),
        ("research » hello ", TextPiece("research", "hello ")),
        ("research »  indented\n", TextPiece("research", " indented\n")),
        ("research » docs/search: started", TextPiece("research", "docs/search: started")),
        ("research » ", TextPiece("research", "")),
        ("anything else", ProgressNote("anything else")),
    ],
)
def test_progress_messages_are_told_apart(message: str, meaning: object) -> None:
    # PI-21, C28
    assert parse(message) == meaning


def test_each_progress_message_replaces_the_status_line_until_the_result() -> None:
    # PI-25
    conversation = ChatConversation("research")
    run = conversation.begin("hi", (), 1.0)
    seen = []
    for message in ("research step 1 (llm)", "docs/search: started", "docs/search: completed"):
        conversation.hear(run, message)
        assert conversation.run is run  # a sub-task that ended ends nothing else
        seen.append(run.status)
    assert seen == ["research step 1 (llm)", "docs/search: started", "docs/search: completed"]
    conversation.answer(run, reply("done"), 2.0)
    assert conversation.run is None


def test_streamed_text_is_joined_and_the_final_text_takes_its_place() -> None:
    # PI-26
    conversation = ChatConversation("research")
    run = conversation.begin("hi", (), 1.0)
    for message in ("research » Let me", "research »  look.", "research step 2 (tool)", "research » Found."):
        conversation.hear(run, message)
    assert run.text == "Let me look.\n\nFound."
    conversation.hear(run, "tickets » words of another agent")
    assert "another" not in run.text
    conversation.answer(run, reply("The whole answer."), 2.0)
    assert [entry.text for entry in conversation.entries] == ["hi", "The whole answer."]
    assert conversation.entries[-1].steps == 1
    assert conversation.entries[-1].key == run.key


def test_calls_stand_where_they_were_made_in_the_text() -> None:
    def told(final: str) -> list[str | tuple[int, int | None]]:
        conversation = ChatConversation("research")
        run = conversation.begin("hi", (), 1.0)
        for message in (
            "research » Let me look.",
            "docs/search: started",
            "docs/search: completed",
            "docs/read: started",
            "docs/read: completed",
            "research step 2 (llm)",
            "research » One more.",
            "docs/list: started",
            "docs/list: completed",
            "research step 3 (llm)",
            "research » Found.",
        ):
            conversation.hear(run, message)
        assert [part.text for part in parts_of(run.text, run.places) if part.text] == STEPS
        conversation.answer(run, reply(final), 2.0)
        return [part.text or (part.first, part.end) for part in conversation.entries[-1].parts]

    one, two, found = STEPS
    assert told("\n\n".join(STEPS)) == [one, (0, 2), two, (2, None), found]
    assert told(f"{two} {found}") == [(0, 2), two, (2, None), f" {found}"]
    assert told("Something else.") == [(0, None), "Something else."]


def test_progress_after_the_result_changes_nothing() -> None:
    conversation = ChatConversation("research")
    run = conversation.begin("hi", (), 1.0)
    conversation.answer(run, reply("done"), 2.0)
    conversation.hear(run, "research » late")
    conversation.answer(run, reply("twice"), 3.0)
    assert [entry.text for entry in conversation.entries] == ["hi", "done"]


def test_figures_of_the_agent_win_over_those_counted_here() -> None:
    conversation = ChatConversation("research")
    run = conversation.begin("hi", (), 1.0)
    conversation.hear(run, "docs/search: started")
    told = AgentReply(text="done", seconds=1.0, steps=4, tools=3, stop_reason="maxIterations")
    conversation.answer(run, told, 2.0)
    last = conversation.entries[-1]
    assert (last.steps, last.tools, last.stopped) == (4, 3, "maxIterations")


def test_a_cancelled_run_keeps_what_was_received() -> None:
    now = 100.0
    conversation = ChatConversation("research", stopwatch=lambda: now)
    run = conversation.begin("hi", (), 1.0)
    conversation.hear(run, "research » so far")
    now = 103.0
    conversation.cancel(run, 4.0)
    last = conversation.entries[-1]
    assert (last.text, last.cut, last.seconds) == ("so far", "cancelled", 3.0)
    assert conversation.can_retry


def test_a_failed_question_can_be_asked_again_without_being_said_twice() -> None:
    conversation = ChatConversation("research")
    run = conversation.begin("hi", (), 1.0)
    conversation.hear(run, "research » half")
    conversation.queue.add("then", (), 1.0)
    conversation.fail(run, Fault(FaultType.TRANSPORT, "gone"), 2.0)
    assert [entry.role for entry in conversation.entries] == ["user", "assistant", "error"]
    assert conversation.entries[1].cut == "broke off"
    assert conversation.queue.held
    again = conversation.retry(3.0)
    assert again is not None
    assert again.question.text == "hi"
    assert [entry.role for entry in conversation.entries] == ["user"]
    conversation.answer(again, reply("done"), 4.0)
    assert [entry.text for entry in conversation.entries] == ["hi", "done"]


def test_a_transcript_is_bounded_and_says_what_it_dropped() -> None:
    conversation = ChatConversation("research")
    for number in range(KEEP):
        conversation.answer(conversation.begin(f"q{number}", (), 1.0), reply("a"), 2.0)
    assert len(conversation.entries) == KEEP
    assert conversation.pruned == KEEP
    assert conversation.entries[0].text == f"q{KEEP // 2}"


def test_conversations_have_handles_nobody_can_guess() -> None:
    # C12
    handles = {ChatConversation("research").handle for _ in range(100)}
    assert len(handles) == 100
    assert all(len(handle.removeprefix("chat-")) >= 22 for handle in handles)  # 128 bits


def test_an_agent_in_error_cannot_be_written_to_and_says_why() -> None:
    # PI-17
    broken = agent("research", 1, health=Health(HealthStatus.ERROR, "no model: key missing"))
    stands(readiness_of("research", broken), Tone.ERROR, False, "no model: key missing")
    failed = agent("research", 1, state=AgentState.ERROR, error="ImportError: no module named x\nmore")
    stands(readiness_of("research", failed), Tone.ERROR, False, "no module named x")
    # Whatever it is that is wrong with an agent of the fleet, a credential opens nothing.
    closed = agent("research", 1, health=Health(HealthStatus.ERROR, f"it {WANTS_CREDENTIAL} (HTTP 401)"))
    stands(readiness_of("research", closed, with_bearer=True), Tone.ERROR, False, WANTS_CREDENTIAL)
    stands(readiness_of("research@desk:1", closed), Tone.ERROR, False, WANTS_CREDENTIAL)
    stands(
        readiness_of("research@desk:1", closed, with_bearer=True), Tone.DEGRADED, True, "needs a credential"
    )


def test_a_degraded_agent_can_be_written_to_and_its_message_is_shown() -> None:
    # PI-17
    lame = agent("research", 1, health=Health(HealthStatus.DEGRADED, "docs: connection refused"))
    stands(readiness_of("research", lame), Tone.DEGRADED, True, "docs: connection refused")


def test_an_agent_that_starts_says_what_it_waits_for() -> None:
    waiting = agent("concierge", 1, state=AgentState.WAITING, depends_on=("research", "docs"))
    stands(readiness_of("concierge", waiting), Tone.STARTING, False, "waits for research, docs")
    loading = agent("concierge", 1, state=AgentState.CONNECTING)
    stands(readiness_of("concierge", loading), Tone.STARTING, False, "connecting")
    stands(readiness_of("concierge", agent("concierge", 1)), Tone.OK, True, "")
    stands(readiness_of("gone", None), Tone.STOPPED, False, "no agent gone")


def test_images_need_an_agent_that_can_see() -> None:
    # PR-17
    assert why_no_images("vision", agent("vision", 1, vision=True)) == ""
    assert "research has no vision" in why_no_images("research", agent("research", 1))
    worker = agent("coder", 1, kind="worker", model="")
    assert why_no_images("coder", worker) == "coder takes no pictures: remove the image."


def test_sent_prompts_come_back_and_the_draft_is_kept() -> None:
    history = PromptHistory(limit=3)
    for text in ("one", "two", "two", "", "three", "four"):
        history.add(text)
    walk = history.walk()
    assert walk.newer() is None
    assert [walk.older("draft"), walk.older("four"), walk.older("three")] == ["four", "three", "two"]
    assert walk.older("two") is None
    assert [walk.newer(), walk.newer(), walk.newer()] == ["three", "four", "draft"]
    assert walk.newer() is None


def test_copying_without_pointing_takes_the_last_answer() -> None:
    conversation = ChatConversation("research")
    assert last_answer(conversation.entries) is None
    run = conversation.begin("one", (), 1.0)
    conversation.answer(run, reply("answer"), 2.0)
    conversation.begin("two", (), 3.0)
    found = last_answer(conversation.entries)
    assert found is not None
    assert found.text == "answer"


def test_of_a_huge_text_the_beginning_is_shown() -> None:
    assert shown("x" * 200_000) == "x" * 200_000
    assert len(shown("x" * 300_000)) < 201_000
    assert "100,000 more" in shown("x" * 300_000)


def test_the_agent_nobody_depends_on_is_the_front() -> None:
    fleet = (agent("docs", 1), agent("desk", 2, depends_on=("docs", "x")), agent("other", 3))
    assert getattr(front_agent(fleet), "name", "") == "desk"
    circle = (agent("a", 1, depends_on=("b",)), agent("b", 2, depends_on=("a",)))
    assert front_agent(circle) is circle[0]
    assert front_agent(()) is None
    starting = agent("desk", 2, depends_on=("docs",), state=AgentState.WAITING)
    assert front_agent((agent("docs", 1), starting)) is starting


def test_a_question_whose_run_was_not_found_again_is_asked_with_the_same_key_once() -> None:
    conversation = ChatConversation("echo")
    first = conversation.begin("hello", (), 0.0)
    conversation.fail(first, Fault(FaultType.TRANSPORT, "gone", data={"looked_for": True}), 1.0)
    second = conversation.retry(2.0)
    assert second is not None
    assert second.idempotency == first.idempotency
    conversation.fail(second, Fault(FaultType.UPSTREAM, "it failed"), 3.0)
    third = conversation.retry(4.0)
    assert third is not None
    assert third.idempotency != first.idempotency
