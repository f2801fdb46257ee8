"""What an agent's server must be told, when, and under which handle."""

from pallas.model import Cost, Fault, FaultType
from pallas_tui.chat.conversation import KEEP, ChatConversation, ChatEntry, TurnEntry, last_question, turns_of
from pallas_tui.chat.token_prices import TokenPrice
from pallas_tui.chat_client import AgentReply
from pallas_tui.pictures.images import ChatPicture

PICTURE = ChatPicture(None, "a.png", "image/png", 3, "AAAA")


def say(conversation: ChatConversation, question: str, answer: str = "") -> ChatEntry:
    run = conversation.begin(question, (), 1.0)
    conversation.answer(run, AgentReply(text=answer or f"re: {question}", seconds=1.0), 2.0)
    return conversation.entries[-1]


def told(conversation: ChatConversation, question: str) -> list[str]:
    return [turn.text for turn in conversation.untold(conversation.begin(question, (), 3.0))]


def test_as_long_as_the_server_knows_everything_nothing_is_told() -> None:
    conversation = ChatConversation("research")
    handle = conversation.handle
    say(conversation, "one")
    assert told(conversation, "two") == []
    assert conversation.handle == handle


def test_a_branch_is_told_what_was_said_up_to_its_message_and_no_more() -> None:
    conversation = ChatConversation("research")
    first = say(conversation, "one")
    say(conversation, "two")
    branch = conversation.branch(first)
    assert [entry.text for entry in branch.entries] == ["one", "re: one"]
    assert branch.handle != conversation.handle
    assert told(branch, "another two") == ["one", "re: one"]
    run = branch.run
    assert run is not None
    branch.answer(run, AgentReply(text="yes", seconds=1.0), 4.0)
    assert told(branch, "three") == []
    assert [entry.text for entry in conversation.entries] == ["one", "re: one", "two", "re: two"]
    assert {entry.key for entry in branch.entries}.isdisjoint(entry.key for entry in conversation.entries)


def test_a_branch_at_a_question_stops_before_it() -> None:
    conversation = ChatConversation("research")
    say(conversation, "one")
    say(conversation, "two")
    branch = conversation.branch(conversation.entries[2])
    assert [entry.text for entry in branch.entries] == ["one", "re: one"]


def test_a_branch_that_failed_is_told_again() -> None:
    conversation = ChatConversation("research")
    branch = conversation.branch(say(conversation, "one"))
    run = branch.begin("two", (), 3.0)
    branch.fail(run, Fault(FaultType.TRANSPORT, "gone"), 4.0)
    again = branch.retry(5.0)
    assert again is not None
    assert [turn.text for turn in branch.untold(again)] == ["one", "re: one"]


def test_a_changed_message_takes_back_what_followed() -> None:
    conversation = ChatConversation("research")
    say(conversation, "one")
    say(conversation, "two")
    say(conversation, "three")
    handle = conversation.handle
    assert conversation.rewind(conversation.entries[2])
    assert [entry.text for entry in conversation.entries] == ["one", "re: one"]
    assert conversation.handle != handle
    assert told(conversation, "two, but better") == ["one", "re: one"]


def test_nothing_is_taken_back_under_a_run_or_twice() -> None:
    conversation = ChatConversation("research")
    say(conversation, "one")
    gone = conversation.entries[0]
    run = conversation.begin("two", (), 3.0)
    assert not conversation.rewind(gone)
    conversation.cancel(run, 4.0)
    assert conversation.rewind(gone)
    assert not conversation.rewind(gone)


def test_an_answer_asked_for_again_is_one_the_server_must_forget() -> None:
    conversation = ChatConversation("research")
    say(conversation, "one")
    say(conversation, "two")
    handle = conversation.handle
    run = conversation.retry(5.0)
    assert run is not None
    assert conversation.handle != handle
    assert [turn.text for turn in conversation.untold(run)] == ["one", "re: one"]
    assert [entry.text for entry in conversation.entries] == ["one", "re: one", "two"]


def test_a_failed_question_is_asked_again_under_the_same_handle() -> None:
    conversation = ChatConversation("research")
    say(conversation, "one")
    handle = conversation.handle
    conversation.cancel(conversation.begin("two", (), 3.0), 4.0)
    run = conversation.retry(5.0)
    assert run is not None
    assert conversation.handle == handle
    assert conversation.untold(run) == ()


def test_what_was_cancelled_or_failed_or_noted_was_never_said() -> None:
    conversation = ChatConversation("research")
    run = conversation.begin("never answered", (PICTURE,), 1.0)
    conversation.hear(run, "research » half")
    conversation.cancel(run, 2.0)
    conversation.fail(conversation.begin("failed", (), 1.0), Fault(FaultType.UPSTREAM, "no"), 2.0)
    conversation.note("a note", 3.0)
    run = conversation.begin("look", (PICTURE,), 4.0)
    conversation.answer(run, AgentReply(text="seen", seconds=1.0), 5.0)
    assert turns_of(conversation.transcript) == (
        TurnEntry("user", "look", (PICTURE.image,)),
        TurnEntry("assistant", "seen"),
    )


def test_what_is_not_shown_any_more_is_still_told_and_can_be_gone_back_to() -> None:
    conversation = ChatConversation("research")
    for number in range(KEEP):
        say(conversation, f"q{number}")
    assert len(conversation.entries) == KEEP
    assert conversation.pruned == KEEP
    assert len(conversation.transcript) == 2 * KEEP
    branch = conversation.branch(conversation.entries[-1])
    assert len(told(branch, "more")) == 2 * KEEP
    first = conversation.transcript[2]
    assert conversation.rewind(first)
    assert [entry.text for entry in conversation.entries] == ["q0", "re: q0"]
    assert conversation.pruned == 0


def test_clearing_begins_anew_and_never_under_a_run() -> None:
    conversation = ChatConversation("research")
    say(conversation, "one")
    handle = conversation.handle
    run = conversation.begin("two", (), 3.0)
    assert not conversation.clear()
    conversation.cancel(run, 4.0)
    assert conversation.clear()
    assert conversation.untouched
    assert conversation.handle != handle
    assert told(conversation, "first") == []


def test_an_answer_has_its_figures_and_what_it_cost() -> None:
    conversation = ChatConversation("research")
    run = conversation.begin("one", (), 1.0)
    for message in ("research step 1 (tool)", "docs/search: started", "docs/search: completed"):
        conversation.hear(run, message)
    reply = AgentReply(
        text="yes", seconds=3.1, steps=4, tools=1, tokens_in=1000, tokens_out=100, run_id="r1", note="so"
    )
    conversation.answer(run, reply, 2.0, TokenPrice(3.0, 15.0))
    answer, note = conversation.entries[-2:]
    assert (answer.tokens_in, answer.tokens_out, answer.run_id) == (1000, 100, "r1")
    assert answer.cost == Cost(4_500_000)
    assert answer.trace_id == run.trace.trace_id
    assert answer.tree is not None
    assert answer.tree.calls == 1
    assert (note.role, note.text) == ("note", "so")
    assert last_question(conversation.entries) is conversation.entries[0]


def test_without_tokens_there_is_no_cost() -> None:
    conversation = ChatConversation("research")
    run = conversation.begin("one", (), 1.0)
    conversation.answer(run, AgentReply(text="yes", seconds=3.1, tokens_in=5), 2.0, TokenPrice(3.0, 15.0))
    assert conversation.entries[-1].cost == Cost()


def test_what_the_fleet_says_that_it_cost_counts_and_adds_up() -> None:
    conversation = ChatConversation("research")
    price = TokenPrice(3.0, 15.0)
    for cost in (Cost(2_000_000), Cost(3_000_000, 1), Cost(None, 1)):
        run = conversation.begin("one", (), 1.0)
        conversation.answer(run, AgentReply(text="yes", seconds=3.1, cost=cost), 2.0, price)
    answers = [each for each in conversation.entries if each.role == "assistant"]
    assert [each.cost.text for each in answers] == ["$0.0020", "$0.0030+", "unknown"]
    assert [each.spent.text for each in answers] == ["$0.0020", "$0.0050+", "$0.0050+"]
    assert conversation.spent == Cost(5_000_000, 2)


def test_each_message_has_a_trace_of_its_own() -> None:
    conversation = ChatConversation("research")
    first = conversation.begin("one", (), 1.0)
    conversation.cancel(first, 2.0)
    second = conversation.retry(3.0)
    assert second is not None
    assert first.trace.trace_id != second.trace.trace_id
    version, trace, span, flags = second.trace.parent.split("-")
    assert (version, len(trace), len(span), flags) == ("00", 32, 16, "01")
