"""Conversations of the chat with a fleet that really runs, in every era: no screen in between."""

from pathlib import Path
from typing import Any

import pytest
from support.live import agent_module, module_fleet, running, tool_call, write_project
from support.offline import model_record, offline_project
from support.recording import recording

from pallas.fleet.fleet import Fleet
from pallas.model import RunFinished, RunStarted
from pallas.model.fingerprint import fingerprint
from pallas_tui.chat.answer_runs import Runs
from pallas_tui.chat.call_outline import CallOutline
from pallas_tui.chat.chat_principal import NOBODY, typed
from pallas_tui.chat.conversation import ChatConversation
from pallas_tui.chat.mcp_talk import Options, Talk
from pallas_tui.chat_client import ChatClient
from pallas_tui.mcp_link import Era

SCRIPT = """
rules:
  - when: {last: user, system: coordinator, text: delegate}
    call: [{tool: helper__send_message, arguments: {message: "use your tool"}}]
  - when: {last: tool, system: coordinator}
    say: "Everything is known now."
  - when: {last: user, system: helper}
    call: [{tool: echo__echo, arguments: {text: "deep"}}]
  - when: {last: tool, system: helper}
    say: "helper got it"
  - when: {last: user}
    say: "You said: {{ user }}"
"""
ERAS: tuple[Era, ...] = ("auto", "modern", "legacy")
every_era = pytest.mark.parametrize("era", ERAS)
pytestmark = pytest.mark.asyncio(loop_scope="module")


@module_fleet()
def fleet(folder: Path) -> Path:
    boss = agent_module("boss", ("helper",)).replace("You are boss.", "You are the coordinator.")
    return offline_project(
        folder,
        {"boss": boss, "helper": agent_module("helper", ("echo",))},
        SCRIPT,
        peers=("helper",),
        keys={"boss": {"depends_on": ["helper"]}},
    )


class Chat:
    """A conversation with an agent of the fleet."""

    def __init__(
        self, fleet: Fleet, agent: str, era: Era, conversation: ChatConversation | None = None
    ) -> None:
        self.url = next(each.url for each in fleet.agents if each.name == agent)
        self.conversation = conversation or ChatConversation(agent)
        self.talk = Talk(self.conversation, ChatClient, lambda: 1.0, Options(era=era))

    async def ask(self, text: str) -> str:
        await self.talk.converse(self.conversation.begin(text, (), 1.0), self.url)
        entry = self.conversation.entries[-1]
        assert entry.role == "assistant", entry
        return entry.text


def asked_of_model(fleet: Fleet) -> list[str]:
    """What the model was last told of the conversation, without the instruction."""
    messages = model_record(fleet).requests[-1]["messages"]
    return [_text(message["content"]) for message in messages if message["role"] in ("user", "assistant")]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


@every_era
async def test_the_calls_of_a_real_delegation_make_a_tree_and_fold(fleet: Fleet, era: Era) -> None:
    # PI-25
    chat = Chat(fleet, "boss", era)
    try:
        assert await chat.ask("delegate it") == "Everything is known now."
    finally:
        await chat.talk.close()
    answer = chat.conversation.entries[-1]
    assert answer.tree is not None
    outline = CallOutline(answer.tree, folded=True)
    (row,) = outline.rows(0)
    assert row.label == "helper/send_message"
    assert row.figures.endswith("1 tool")
    assert row.state == "ok"
    outline.set_open(None, True)
    assert [(each.depth, each.label) for each in outline.rows(0)] == [
        (0, "helper/send_message"),
        (1, "echo/echo"),
    ]
    assert answer.tokens_in is not None
    assert answer.tokens_out is not None


@every_era
async def test_a_message_is_found_among_the_fleets_runs(fleet: Fleet, era: Era) -> None:
    chat = Chat(fleet, "boss", era)
    before = fleet.hub.since(0).next
    try:
        await chat.ask("delegate it")
    finally:
        await chat.talk.close()
    events = fleet.hub.since(before).events
    answer = chat.conversation.entries[-1]
    own = next(event for event in events if isinstance(event, RunStarted) and event.agent == "boss")
    assert answer.run_id == own.run_id
    assert own.trace_id == answer.trace_id
    runs = Runs()
    runs.absorb(events)
    assert runs.of(answer) == own.run_id
    answer.run_id = ""  # as while it still runs
    assert runs.of(answer) == own.run_id
    finished = next(event for event in events if isinstance(event, RunFinished) and event.agent == "boss")
    assert (finished.tokens_in, finished.tokens_out) == (answer.tokens_in, answer.tokens_out)


@every_era
async def test_a_branch_goes_on_from_where_it_left_on_the_server(fleet: Fleet, era: Era) -> None:
    chat = Chat(fleet, "boss", era)
    await chat.ask("one")
    first = chat.conversation.entries[-1]
    await chat.ask("two")
    branch = Chat(fleet, "boss", era, chat.conversation.branch(first))
    try:
        await branch.ask("instead of two")
        assert asked_of_model(fleet) == ["one", "You said: one", "instead of two"]
        await branch.ask("three")
        assert asked_of_model(fleet)[-3:] == ["instead of two", "You said: instead of two", "three"]
        assert len(asked_of_model(fleet)) == 5
        await chat.ask("three")
        assert asked_of_model(fleet) == ["one", "You said: one", "two", "You said: two", "three"]
    finally:
        await branch.talk.close()
        await chat.talk.close()


@every_era
async def test_what_was_taken_back_is_unknown_to_the_server(fleet: Fleet, era: Era) -> None:
    chat = Chat(fleet, "boss", era)
    try:
        await chat.ask("one")
        await chat.ask("two")
        chat.conversation.rewind(chat.conversation.entries[2])
        await chat.ask("two, but better")
        assert asked_of_model(fleet) == ["one", "You said: one", "two, but better"]
        run = chat.conversation.retry(2.0)
        assert run is not None
        await chat.talk.converse(run, chat.url)
        assert asked_of_model(fleet) == ["one", "You said: one", "two, but better"]
        assert len(chat.conversation.entries) == 4
    finally:
        await chat.talk.close()


async def test_the_conversation_goes_on_when_the_era_is_changed(fleet: Fleet) -> None:
    chat = Chat(fleet, "boss", "modern")
    try:
        await chat.ask("one")
        assert chat.talk.protocol == "2026-07-28"
        chat.talk.choose_era("legacy")
        await chat.ask("two")
        assert chat.talk.protocol.startswith("2025")
        assert asked_of_model(fleet) == ["one", "You said: one", "two"]
    finally:
        await chat.talk.close()


@every_era
async def test_a_conversation_belongs_to_whoever_asks_and_the_bearer_reaches_the_downstream(
    tmp_path: Path, era: Era
) -> None:
    async with recording() as recorder:
        entry = {"url": recorder.url, "forward_inbound_auth": True}
        root = write_project(
            tmp_path, {"one": agent_module("one", ("rec",))}, config={"mcp": {"servers": {"rec": entry}}}
        )
        async with running(root) as started:
            chat, other = Chat(started, "one", era), Chat(started, "one", era)
            chat.talk.choose_principal(typed("tok-of-alice"))
            try:
                await chat.ask(tool_call("rec__note", text="first"))
                await other.ask(tool_call("rec__note", text="by nobody"))
                assert [each.bearer for each in recorder.calls()] == ["tok-of-alice", ""]
                chat.talk.choose_principal(typed("tok-of-bob"))
                await chat.ask(tool_call("rec__note", text="second"))
                assert recorder.calls()[-1].bearer == "tok-of-bob"
                chat.talk.choose_principal(NOBODY)
                await chat.ask(tool_call("rec__note", text="third"))
                assert recorder.calls()[-1].authorization == ""
            finally:
                await chat.talk.close()
                await other.talk.close()
            starts = [event for event in started.hub.since(0).events if isinstance(event, RunStarted)]
            assert "tok-of" not in repr(starts)
            principals = {event.principal for event in starts if event.principal}
            assert not principals or any(fingerprint("tok-of-alice") in each for each in principals)
