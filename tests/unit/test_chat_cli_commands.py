"""The commands that set parameters, list threads, send pictures, asked of a host that can all of it."""

from collections.abc import Sequence
from typing import Any

import pytest

from pallas.commands import COMMANDS, CommandOutcome, ShownParameter, read
from pallas.model import NO_PARAMS, AgentDetail, Params, ThreadRecord


class Host:
    """Notes everything."""

    def __init__(self) -> None:
        self.params = NO_PARAMS
        self.done: list[tuple[Any, ...]] = []
        self.listed: tuple[str, ...] = ()

    def parameters(self) -> Sequence[ShownParameter]:
        return (ShownParameter("stream", "on", "Show text while it is written.", ("on", "off")),)

    async def set(self, name: str, value: str) -> str:
        self.done.append(("set", name, value))
        return f"{name} is {value}"

    async def describe(self) -> AgentDetail:
        return AgentDetail("research", instruction="You find things.")

    async def clear(self) -> str:
        return "A new conversation."

    async def export(self, form: str, path: str) -> str:
        return "written"

    def facts(self) -> Sequence[tuple[str, str]]:
        return ()

    async def quit(self) -> None:
        self.done.append(("quit",))

    def overrides(self) -> Params:
        return self.params

    def override(self, params: Params) -> None:
        self.params = params

    async def save(self, params: Params) -> str:
        self.done.append(("save", params.to_json()))
        return "Saved."

    def known_threads(self) -> Sequence[str]:
        return self.listed

    async def threads(self) -> Sequence[ThreadRecord]:
        found = (
            ThreadRecord("conv-b", "research", "me", title="Bugs\nof May", messages=4, last_turn_at=1.7e9),
            ThreadRecord("conv-a", "research", "me", messages=1),
        )
        self.listed = tuple(each.id for each in found)
        return found

    async def resume(self, thread: str) -> str:
        self.done.append(("resume", thread))
        return thread

    async def attach(self, path: str) -> str:
        self.done.append(("attach", path))
        return path

    async def retry(self) -> str:
        self.done.append(("retry",))
        return ""


async def run(host: Host, *lines: str) -> CommandOutcome:
    outcome = CommandOutcome()
    for line in lines:
        outcome = await COMMANDS.run(host, read(line))
    return outcome


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("/set temperature 0.2", {"temperature": 0.2}),
        ("/set topP=0.9", {"top_p": 0.9}),
        ("/set top-k 3", {"top_k": 3}),
        ("/set MAX_TOKENS 100", {"max_tokens": 100}),
        ("/set stop END", {"stop": ["END"]}),
        ("/set stop 3", {"stop": ["3"]}),
        ("/set stop a=b", {"stop": ["a=b"]}),
        ('/set stop ["a","b"]', {"stop": ["a", "b"]}),
        ("/set toolsAllowlist docs__find, shop__buy", {"tools_allowlist": ["docs__find", "shop__buy"]}),
        ("/set tool_choice none", {"tool_choice": "none"}),
        ('/set response_format {"type":"json_object"}', {"response_format": {"type": "json_object"}}),
        ("/set systemOverride 12", {"systemOverride": "12"}),
        ("/set seed null", {"seed": None}),
        ("/set repetition_penalty 1.1", {"extra": {"repetition_penalty": 1.1}}),
        ("/set extra.metadata.user_id me", {"extra": {"metadata.user_id": "me"}}),
        ('/set extra {"a": 1}', {"extra": {"a": 1}}),
        ("/system Be brief.\nIn French.", {"systemOverride": "Be brief.\nIn French."}),
        ("/append In French.", {"systemAppend": "In French."}),
    ],
)  # fmt: skip
async def test_a_parameter_is_set_in_any_spelling(line: str, values: dict[str, Any]) -> None:
    # AG-26, UN-5
    host = Host()
    assert (await run(host, line)).ok
    assert host.params.to_json() == values
    # The same as a caller of the API writes it.
    assert Params.read(values, strict=True).to_json() == values


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/set temperature 3", "must be a number from 0 to 2"),
        ("/set temperature warm", "must be a number from 0 to 2"),
        ("/set temperature NaN", "must be a number from 0 to 2"),
        ('/set stop ["1","2","3","4","5"]', "at most 4"),
        ("/set tool_choice sometimes", "must be"),
        ("/set messages []", "one call only"),
        ("/set extra. 3", "needs a name"),
        ("/unset seed", "seed is not set"),
        ("/unset", "Which one?"),
        ("/save", "Nothing is set"),
        ("/save now", "/export now"),
        ("/resume", "/threads lists them"),
        ("/resume 9", "no conversation number 9"),
        ("/set temperature\n0.3", "takes one line"),
    ],
)
async def test_what_cannot_be_set_is_told_and_nothing_changes(line: str, words: str) -> None:
    # AG-26
    host = Host()
    outcome = await run(host, line)
    assert not outcome.ok
    assert words in outcome.text
    assert not host.params
    assert host.done == []


async def test_parameters_add_up_are_shown_and_are_taken_back() -> None:
    # AG-26
    host = Host()
    assert "No parameter of the model is set here" in (await run(host, "/set")).text
    await run(host, "/set temperature 0.2", "/set foo 1", "/set bar x", "/set temperature 0.3")
    assert host.params.to_json() == {"temperature": 0.3, "extra": {"foo": 1, "bar": "x"}}
    shown = (await run(host, "/set")).text
    assert "stream" in shown and "temperature  0.3" in shown and "extra.foo" in shown
    assert (await run(host, "/set temperature")).text == "temperature  0.3\n  0 to 2"
    assert (await run(host, "/set topK")).text.startswith("top_k  not set here")
    assert (await run(host, "/set foo")).text == "extra.foo  1"
    assert "is cleared" in (await run(host, "/set temperature null")).text
    assert host.params.cleared("temperature")
    await run(host, "/unset temperature", "/unset foo", "/unset extra.bar")
    assert not host.params


async def test_a_name_that_is_not_known_goes_to_the_provider_and_a_slip_is_told() -> None:
    # AG-26
    host = Host()
    outcome = await run(host, "/set temprature 0.1")
    assert outcome.ok
    assert host.params.to_json() == {"extra": {"temprature": 0.1}}
    assert "sent to the provider as it is. Did you mean temperature?" in outcome.text


async def test_how_the_conversation_is_held_goes_before_parameters() -> None:
    # AG-26
    host = Host()
    assert (await run(host, "/set stream off")).text == "stream is off"
    assert (await run(host, "/set stream")).text.startswith("stream  on")
    assert host.done == [("set", "stream", "off")]


async def test_the_instruction_is_replaced_shown_and_given_back() -> None:
    # AG-26
    host = Host()
    await run(host, "/system Be brief.")
    told = (await run(host, "/system")).text
    assert told == "Removed: Be brief.\n\nYou find things."
    assert (await run(host, "/system")).text == "You find things."
    await run(host, "/system Be brief.", '/system ""')
    assert not host.params
    assert (await run(host, "/append")).text == "No text was added to the agent's instruction."
    await run(host, "/append In French.")
    assert (await run(host, "/append")).text == "Removed: In French."
    assert not host.params


async def test_save_keeps_everything_but_what_stands_for_the_instruction() -> None:
    # AG-26, AG-13
    host = Host()
    await run(
        host, "/set temperature 0.2", "/set seed null", "/system Be brief.", "/append French.", "/set foo 1"
    )
    assert (await run(host, "/save")).text == "Saved."
    assert host.done == [("save", {"temperature": 0.2, "seed": None, "extra": {"foo": 1}})]
    assert host.params.get("systemOverride") == "Be brief."


async def test_threads_are_listed_and_one_is_gone_on_with() -> None:
    # AG-26
    host = Host()
    lines = (await run(host, "/threads")).text.splitlines()
    assert lines[0].startswith("  1  conv-b  2023-11-1") and lines[0].endswith("4 messages  Bugs")
    assert lines[1] == "  2  conv-a  1 message"
    assert COMMANDS.complete(host, "/resume conv-").candidates == ("conv-b", "conv-a")
    await run(host, "/resume 2", "/resume conv-b", "/resume other")
    assert host.done == [("resume", "conv-a"), ("resume", "conv-b"), ("resume", "other")]


async def test_pictures_and_the_last_question_again() -> None:
    # AG-26
    host = Host()
    await run(host, "/image 'my cat.png'", "/retry", "/exit")
    assert host.done == [("attach", "my cat.png"), ("retry",), ("quit",)]


@pytest.mark.parametrize(
    ("line", "candidates"),
    [
        ("/set st", ("stream", "stop")),
        ("/set stream o", ("on", "off")),
        ("/set toolChoice ", ("auto", "none", "required")),
        ("/unset ", ("seed", "extra.foo")),
        ("/th", ("thread", "threads")),
    ],
)
def test_names_and_values_are_completed(line: str, candidates: tuple[str, ...]) -> None:
    # AG-26
    host = Host()
    host.params = Params.read({"seed": 1, "foo": 2}, strict=False)
    assert COMMANDS.complete(host, line).candidates == candidates
