"""Parameters that are set in the workbench: they go with each message, and are saved as the agent's own."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.fake_fleet import agent
from support.live import client, running, write_project
from support.notices import notices_of
from support.pane_app import PaneApp
from support.providers import Provider, provider
from support.waiting import until
from textual.pilot import Pilot

from pallas.fleet.fleet import Fleet
from pallas.fleet.local_port import LocalPort
from pallas.model import AgentState
from pallas_tui.widgets.chat import ChatPane
from pallas_tui.widgets.chat.conversation_view import ConversationView
from pallas_tui.widgets.chat.prompt_area import PromptArea

META = "local.pallas/params"


class Chat:
    """A chat with an agent of a real fleet, over the port that the workbench has."""

    def __init__(self, app: PaneApp, pane: ChatPane, pilot: Pilot[None]) -> None:
        self.app, self.pane, self.pilot = app, pane, pilot

    @property
    def view(self) -> ConversationView:
        view = self.pane._current
        assert view is not None
        return view

    async def until(self, condition: Any) -> Any:
        return await until(condition, self.pilot)

    async def type(self, text: str) -> None:
        prompt = self.view.query_one(PromptArea)
        prompt.load_text("")
        prompt.insert(text)
        await self.pilot.press("enter")

    async def ask(self, text: str) -> None:
        before = len(self.view.conversation.entries)
        await self.type(text)
        await self.until(lambda: len(self.view.conversation.entries) >= before + 2)
        await self.until(lambda: self.view.conversation.run is None)

    async def command(self, text: str, answer: str) -> None:
        await self.type(text)
        await self.until(lambda: answer in self.said())

    def said(self) -> str:
        notes = [entry.text for entry in self.view.conversation.entries if entry.role == "note"]
        return "\n".join([*notes, *(notice.message for notice in notices_of(self.app))])


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[Fleet, Provider]]:
    async with provider() as behind:
        config = behind.config("generic.qwen3")
        keys = {"here": {"params": {"temperature": 0.4}}}
        root = write_project(tmp_path / "project", {"here": None}, keys=keys, config=config)
        async with running(root, database="memory") as fleet:
            yield fleet, behind


@pytest.fixture
async def chat(served: tuple[Fleet, Provider], tmp_path: Path) -> AsyncIterator[Chat]:
    fleet, _ = served
    pane = ChatPane(base=tmp_path)
    app = PaneApp(pane)
    app.fleet = LocalPort(fleet)  # type: ignore[attr-defined]
    url = fleet.agents[0].url
    async with app.run_test(size=(120, 40)) as pilot:
        app.feed(agent("here", 24201, url=url))
        one = Chat(app, pane, pilot)
        await until(lambda: one.view.is_mounted and one.view.query_one(PromptArea).has_focus, pilot)
        yield one


def request_of(behind: Provider) -> dict[str, Any]:
    """What the provider was last asked, but for the conversation."""
    return {**behind.asked[-1].body, "messages": behind.asked[-1].body["messages"][:1]}


@pytest.mark.slow
async def test_the_same_parameters_in_any_spelling_and_by_set_make_the_same_request(
    served: tuple[Fleet, Provider], chat: Chat
) -> None:
    # UN-5
    fleet, behind = served
    snake = {"top_p": 0.5, "max_tokens": 7, "stop": ["END"], "tool_choice": "none", "system_append": "Brief."}
    camel = {"topP": 0.5, "maxTokens": 7, "stop": ["END"], "toolChoice": "none", "systemAppend": "Brief."}
    requests = []
    async with client(fleet, "here") as connected:
        for params in (snake, camel):
            meta: Any = {META: params}
            await connected.call_tool("send_message", {"message": "hi"}, meta=meta)
            requests.append(request_of(behind))
    await chat.command("/set top_p 0.5", "top_p is 0.5")
    await chat.command("/set maxTokens=7", "max_tokens is 7")
    await chat.command('/set stop ["END"]', "stop is")
    await chat.command("/set tool-choice none", "tool_choice is none")
    await chat.command("/append Brief.", "this text follows the instruction")
    await chat.ask("hi")
    requests.append(request_of(behind))
    # The workbench asks for text as it is written; to the provider that is the same request.
    assert requests[0] == requests[1] == requests[2]
    assert (requests[0]["top_p"], requests[0]["max_tokens"], requests[0]["stop"]) == (0.5, 7, ["END"])
    assert requests[0]["temperature"] == 0.4
    assert "Brief." in requests[0]["messages"][0]["content"]
    assert "5 parameters" in chat.pane.caption
    await chat.command("/thread", "top_p 0.5")

    await chat.command("/set temperature null", "temperature is cleared")
    await chat.ask("again")
    assert "temperature" not in request_of(behind)
    await chat.command("/unset temperature", "reset to the agent's own value")
    await chat.ask("once more")
    assert request_of(behind)["temperature"] == 0.4


@pytest.mark.slow
async def test_parameters_of_one_tab_are_not_those_of_another_and_a_branch_has_them(
    served: tuple[Fleet, Provider], chat: Chat
) -> None:
    _, behind = served
    await chat.command("/set temperature 1.5", "temperature is 1.5")
    await chat.ask("hi")
    assert request_of(behind)["temperature"] == 1.5
    first = chat.view
    chat.pane.action_branch()
    await chat.until(lambda: chat.view is not first and chat.view.is_mounted)
    await chat.ask("from the branch")
    assert request_of(behind)["temperature"] == 1.5
    branch = chat.view
    chat.pane.new_conversation("here", wanted=True)
    await chat.until(lambda: chat.view not in (first, branch) and chat.view.is_mounted)
    await chat.ask("another")
    assert request_of(behind)["temperature"] == 0.4


async def test_a_wrong_value_is_refused_where_it_is_typed(chat: Chat) -> None:
    await chat.command("/set temperature 3", "temperature: must be a number from 0 to 2")
    await chat.command("/set stop [1]", "stop: must be")
    assert not chat.view.conversation.params


async def test_saving_says_where_the_parameters_of_an_agent_of_the_files_stand(chat: Chat) -> None:
    await chat.command("/save", "Nothing is set that could be saved")
    await chat.command("/set temperature 0.9", "temperature is 0.9")
    await chat.command("/system You are a pirate.", "this is the instruction")
    await chat.command("/save", "agents.yaml")


@pytest.mark.slow
async def test_saved_parameters_are_those_of_every_caller_from_then_on(
    served: tuple[Fleet, Provider], chat: Chat
) -> None:
    # AG-13, AG-26
    fleet, behind = served
    assert fleet.catalog is not None
    llm = {"type": "openai", "model": "qwen3", "url": f"{behind.base}/v1"}
    await fleet.catalog.create("llm", "local", llm, "anonymous")
    spec = {"systemPrompt": "You are made.", "llm": "local", "defaultParams": {"temperature": 0.4, "seed": 1}}
    await fleet.catalog.create("agent", "made", spec, "anonymous")
    made = next(each for each in fleet.agents if each.name == "made")
    await chat.until(lambda: made.state is AgentState.READY)
    chat.app.feed(agent("made", 24201, url=made.url))
    chat.pane.new_conversation("made", wanted=True)
    await chat.until(lambda: chat.view.conversation.agent == "made" and chat.view.is_mounted)
    await chat.command("/set temperature 0.9", "temperature is 0.9")
    await chat.command("/system You are a pirate.", "this is the instruction")
    await chat.ask("hi")
    assert "pirate" in behind.asked[-1].system
    await chat.command("/save", "temperature saved: made has them")
    kept = await fleet.catalog.get("agent", "made")
    assert kept.spec["defaultParams"] == {"temperature": 0.9, "seed": 1}
    assert kept.spec["systemPrompt"] == "You are made."
    made = next(each for each in fleet.agents if each.name == "made")
    async with client(fleet, "made") as connected:
        await connected.call_tool("send_message", {"message": "of somebody else"})
    assert request_of(behind)["temperature"] == 0.9
    assert "made" in behind.asked[-1].system
