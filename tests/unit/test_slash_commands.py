"""The commands of a conversation, asked of a host that notes what is done (AG-26)."""

from collections.abc import Sequence

import pytest

from pallas.commands import COMMANDS, CommandOutcome, ShownParameter, Typed, read
from pallas.model import AgentDetail, Fault, FaultType, ServerDetail, ToolDetail

DETAIL = AgentDetail(
    "research",
    instruction="You find things.",
    defined="agents/research.py:8",
    servers=(
        ServerDetail("", (ToolDetail("send_message", description="Send a message"),)),
        ServerDetail(
            "docs",
            (ToolDetail("search", description="Search\nthe papers", input_schema='{"type":"object"}'),),
        ),
        ServerDetail("vault", problem="connection refused"),
    ),
)


class Host:
    """Notes everything."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []

    def parameters(self) -> Sequence[ShownParameter]:
        return (
            ShownParameter("era", "auto", "The protocol.", ("auto", "modern", "handshake")),
            ShownParameter("stream", "on", "Text.", ("on", "off")),
        )

    async def set(self, name: str, value: str) -> str:
        if value == "bad":
            raise Fault(FaultType.CONFIG, "bad is bad")
        self.done.append(("set", name, value))
        return f"{name} is {value}"

    async def describe(self) -> AgentDetail:
        return DETAIL

    async def clear(self) -> str:
        self.done.append(("clear",))
        return ""

    async def export(self, form: str, path: str) -> str:
        self.done.append(("export", form, path))
        return "written"

    def facts(self) -> Sequence[tuple[str, str]]:
        return (("conversation", "chat-1"), ("cost", ""))

    async def quit(self) -> None:
        self.done.append(("quit",))


async def run(text: str, host: Host | None = None) -> CommandOutcome:
    return await COMMANDS.run(host or Host(), read(text))


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("/help", Typed("help", "")),
        ("  /help  ", Typed("", "  /help  ")),
        ("/SET era  modern ", Typed("set", "era  modern")),
        ("/?", Typed("?", "")),
        ("//help me", Typed("", "/help me")),
        ("/etc/hosts is broken", Typed("", "/etc/hosts is broken")),
        ("/ alone", Typed("", "/ alone")),
        ("hello /help", Typed("", "hello /help")),
    ],
)
def test_what_is_a_command_and_what_a_message(text: str, typed: Typed) -> None:
    # AG-26
    assert read(text) == typed


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("/set era modern", ("set", "era", "modern")),
        ("/set era=modern", ("set", "era", "modern")),
        ("/clear", ("clear",)),
        ("/export", ("export", "", "")),
        ("/export 'my talk.json'", ("export", "", "my talk.json")),
        ("/export json", ("export", "json", "")),
        ("/export md notes/it's fine.md", ("export", "md", "notes/it's fine.md")),
        ("/export talk.md", ("export", "", "talk.md")),
        ("/quit", ("quit",)),
        ("/exit", ("quit",)),
    ],
)
async def test_each_command_does_what_it_says(text: str, done: tuple[str, ...]) -> None:
    # AG-26
    host = Host()
    assert (await run(text, host)).ok
    assert host.done == [done]


async def test_set_shows_what_there_is_and_what_stands_in_one() -> None:
    # AG-26
    everything = (await run("/set")).text
    assert "era     auto" in everything
    assert "stream  on" in everything
    assert "for example auto, modern, handshake" in (await run("/set era")).text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/set temperature 0.2", "this agent's server takes no parameters of its model"),
        ("/unset temperature", "takes no parameters of its model"),
        ("/append be brief", "takes no parameters of its model"),
        ("/save", "takes no parameters of its model"),
        ("/save talk.md", "To write the transcript: /export talk.md"),
        ("/threads", "not known here"),
        ("/resume 1", "not known here"),
        ("/image cat.png", "cannot be sent from here"),
        ("/retry", "Nothing can be asked again"),
        ("/set eras modern", "Did you mean era?"),
        ("/set zzz 1", "There are era, stream."),
        ("/set era bad", "bad is bad"),
        ("/system be brief", "no MCP client can change it"),
        ("/expotr x", "Did you mean /export?"),
        ("/exp", "Did you mean /export?"),
        ("/qqqq", "/help lists all of them"),
        ("/set era\nmodern", "takes one line"),
    ],
)
async def test_what_cannot_be_is_told_with_the_way_out_and_does_nothing(text: str, words: str) -> None:
    # AG-26
    host = Host()
    outcome = await run(text, host)
    assert not outcome.ok
    assert words in outcome.text
    assert host.done == []


async def test_instruction_tools_and_facts_are_shown() -> None:
    # AG-26
    assert (await run("/system")).text == "You find things.\n\n(defined in agents/research.py:8)"
    tools = (await run("/tools")).text
    assert "docs\n  search: Search" in tools
    assert "vault\n  connection refused" in tools
    one = (await run("/tools docs/search")).text
    assert '"type": "object"' in one
    assert "vault" not in one
    assert "no tool called nothing" in (await run("/tools nothing")).text
    assert (await run("/thread")).text == "conversation  chat-1"


async def test_help_lists_every_command_and_tells_one() -> None:
    # AG-26
    text = (await run("/help")).text
    for name in ("set", "system", "tools", "clear", "save", "quit", "help", "thread", "export", "retry"):
        assert f"/{name}" in text
        assert name in COMMANDS.commands
    assert (await run("/?")).text == text
    assert (await run("/help set")).text.startswith("/set [name [value]]")
    assert "Did you mean /set?" in (await run("/help sett")).text


@pytest.mark.parametrize(
    ("line", "candidates", "common"),
    [
        ("/", tuple(COMMANDS.commands), ""),
        ("/s", ("set", "system", "save"), "s"),
        ("/sy", ("system",), "system"),
        ("/set ", ("era", "stream"), ""),
        ("/set era m", ("modern",), "modern"),
        ("/export ", ("md", "json"), ""),
        ("/help to", ("tools",), "tools"),
        ("/nothing x", (), ""),
        ("//s", (), ""),
        ("plain", (), ""),
    ],
)
def test_a_line_can_be_completed(line: str, candidates: tuple[str, ...], common: str) -> None:
    # AG-26
    found = COMMANDS.complete(Host(), line)
    assert (found.candidates, found.common) == (candidates, common)


def test_the_hint_says_what_a_command_is_for() -> None:
    assert COMMANDS.hint("/tools x") == "/tools [name]: Lists the agent's tools; one of them with its schema."
    assert COMMANDS.hint("tools") == ""
