"""Conversations: whose, one run at a time, bounded."""

import asyncio

import pytest

from pallas.access.identity import unverified_principal
from pallas.model import Fault, FaultType, Image, Message, Principal
from pallas.model.ids import mint
from pallas.runs.conversations import ConversationMemory, Conversations, key_of

ALICE, BOB = Principal("bearer:a"), Principal("bearer:b")


def test_a_handle_of_another_principal_is_refused_as_not_found() -> None:
    # PR-19
    all_ = Conversations()
    all_.open("id:x", ALICE).messages = (Message("user", "secret"),)
    with pytest.raises(Fault, match="not found") as caught:
        all_.open("id:x", BOB)
    with pytest.raises(Fault) as unknown:
        all_.find("id:nothing", BOB)
    assert caught.value.message == unknown.value.message


def test_a_throw_away_conversation_is_new_each_time() -> None:
    # PR-19
    all_ = Conversations()
    assert all_.open(None, ALICE) is not all_.open(None, ALICE)
    assert len(all_) == 0


def test_a_handle_never_names_a_session() -> None:
    # PR-19
    assert key_of("session:1", None) != key_of(None, "1")
    assert key_of("h", "1") == key_of("h", "2")
    assert key_of(None, None) is None


@pytest.mark.parametrize("handle", ["", "x" * 201, "a\nb", "\x1b[2J"])
def test_a_handle_that_cannot_be_shown_is_refused_with_the_rule(handle: str) -> None:
    with pytest.raises(Fault, match="1 to 200 printable") as caught:
        key_of(handle, None)
    assert caught.value.type is FaultType.PROTOCOL


def test_minted_handles_differ_and_are_accepted() -> None:
    handles = {mint() for _ in range(100)}
    assert len(handles) == 100
    assert all(key_of(handle, None) for handle in handles)


def test_a_principal_never_shows_its_token() -> None:
    # PR-36
    token = "sk-very-secret-token"
    assert token not in repr(unverified_principal(token))
    assert unverified_principal(token) == unverified_principal(token) != unverified_principal("other")
    assert unverified_principal(None) == unverified_principal("") == Principal()


async def test_runs_of_one_conversation_go_in_the_order_of_asking() -> None:
    # PR-19
    conversation = Conversations().open("id:x", ALICE)
    order: list[int] = []

    async def run(number: int) -> None:
        async with conversation.turn():
            order.append(number)
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*(run(number) for number in range(20)))
    assert order == [number for number in range(20) for _ in range(2)]
    assert not conversation.busy


async def test_a_full_queue_refuses_at_once() -> None:
    conversation = Conversations().open("id:x", ALICE)
    async with conversation.turn():
        tasks = [asyncio.create_task(conversation.turn().__aenter__()) for _ in range(100)]
        await asyncio.sleep(0)
        with pytest.raises(Fault, match="100 messages wait") as caught:
            async with conversation.turn():
                pass
        assert caught.value.data["retry_after"] == 5.0
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(60), conversation.turn():
        pass


async def test_the_longest_unused_conversations_are_forgotten_but_never_a_busy_one() -> None:
    all_ = Conversations(max_idle=2)
    first = all_.open("id:1", ALICE)
    first.messages = (Message("user", "a"),)
    async with first.turn():
        for number in range(2, 6):
            all_.open(f"id:{number}", ALICE)
        assert all_.find("id:1", ALICE) is first
    assert len(all_) <= 3
    with pytest.raises(Fault):
        all_.find("id:2", ALICE)


async def test_large_conversations_make_room_for_new_ones_and_the_newest_stays() -> None:
    all_ = Conversations(memory=ConversationMemory(1_000))
    for number in range(20):
        conversation = all_.open(f"id:{number}", ALICE)
        for _ in range(3):
            async with conversation.turn():
                all_.store(conversation, conversation.messages, (Message("user", "x" * 100),))
        assert len(conversation.messages) == 3
    assert len(all_) <= 4
    assert len(all_.find("id:19", ALICE).messages) == 3
    with pytest.raises(Fault):
        all_.find("id:0", ALICE)


async def test_agents_share_one_bound_and_the_longest_unused_of_any_makes_room() -> None:
    seconds = iter(range(1_000_000))
    memory = ConversationMemory(1_000)
    agents = [Conversations(memory=memory, clock=lambda: float(next(seconds))) for _ in range(5)]
    for number in range(40):
        all_ = agents[number % 5]
        conversation = all_.open(f"id:{number}", ALICE)
        async with conversation.turn():
            all_.store(conversation, (), (Message("user", "x" * 200),))
        assert memory.size <= 1_000
    assert [len(each) for each in agents] == [1, 1, 1, 1, 1]
    # One that is busy stays, and does not keep the others.
    first = agents[0].find("id:35", ALICE)
    async with first.turn():
        for number in range(10):
            conversation = agents[1].open(f"id:more-{number}", ALICE)
            agents[1].store(conversation, (), (Message("user", "x" * 200),))
        assert memory.size <= 1_000
        assert agents[0].find("id:35", ALICE) is first
    agents[1].close_all()
    assert memory.size <= 200


def test_a_conversation_that_was_compacted_counts_what_is_left() -> None:
    all_ = Conversations(memory=ConversationMemory(1_000))
    first = all_.open("id:first", ALICE)
    all_.store(first, (), (Message("user", "x" * 900),))
    all_.store(first, (), (Message("assistant", "short"),))
    other = all_.open("id:other", ALICE)
    all_.store(other, (), (Message("user", "x" * 900),))
    assert all_.find("id:first", ALICE).messages[0].text == "short"


def test_pictures_and_tool_answers_count() -> None:
    picture = Message("user", "see", (Image("A" * 500, "image/png"),))
    assert picture.size == 503
    assert Message("tool", "result").size == 6


def test_all_names_of_a_thread_lead_to_one_conversation() -> None:
    # UN-1, C12
    all_ = Conversations()
    mine = all_.open("id:mine", ALICE)
    assert all_.open(f"id:{mine.key}", ALICE) is mine
    begun = all_.open("session:1", ALICE)
    assert all_.open(f"id:{begun.key}", ALICE) is begun is not mine
    assert (mine.handle, begun.handle) == ("mine", "")
    assert all_.bind("id:other", "thread", "other", ALICE) is all_.bind("id:thread", "thread", "other", ALICE)
    assert len(all_) == 3


def test_the_end_of_a_session_leaves_a_conversation_that_has_another_name() -> None:
    # UN-1
    all_ = Conversations()
    begun = all_.open("session:1", ALICE)
    all_.open(f"id:{begun.key}", ALICE)
    all_.close("session:1", BOB)
    assert "session:1" in all_
    all_.close("session:1", ALICE)
    assert "session:1" not in all_
    assert all_.find(f"id:{begun.key}", ALICE) is begun


async def test_a_conversation_that_a_run_is_about_to_enter_stays_in_memory() -> None:
    # C19
    all_ = Conversations(max_idle=1)
    first = all_.open("id:1", ALICE)
    with first.held():
        all_.open("id:2", ALICE)
        all_.open("id:3", ALICE)
        assert all_.open("id:1", ALICE) is first
    all_.open("id:4", ALICE)
    assert "id:1" not in all_
