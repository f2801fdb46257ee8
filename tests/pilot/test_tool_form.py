"""A tool called by hand: what is typed is what is sent, and nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.fake_fleet import FakeFleet
from support.notices import notices_of
from support.shell import DrivenWorkbench, screen_text, workbench
from support.tools import SEARCH, detail, fleet_with_tools, tool
from support.waiting import until
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from pallas.model import Fault, FaultType, ServerDetail, ToolOutcome
from pallas.model.redaction import redact_text
from pallas_tui.app import Workbench
from pallas_tui.forms import ABSENT
from pallas_tui.screens.tool_screen import ToolScreen
from pallas_tui.targets import ToolTarget
from pallas_tui.widgets.dialogs.choice_dialog import ChoiceScreen
from pallas_tui.widgets.dialogs.line_dialog import LineScreen
from pallas_tui.widgets.form import ToolPane
from pallas_tui.widgets.form.field_keys import FormList

SIZES = [(60, 20), (80, 24), (120, 40)]
SMALL = (80, 24)


class Bench(DrivenWorkbench):
    """The form of one tool, and short words for what a person does in it."""

    def __init__(self, app: Workbench, pilot: Pilot[Any], fleet: FakeFleet) -> None:
        super().__init__(app, pilot)
        self.fleet = fleet

    @property
    def pane(self) -> ToolPane:
        return self.app.screen.query_one(ToolPane)

    @property
    def value(self) -> dict[str, Any]:
        return self.pane.form.value

    async def on(self, *path: str | int) -> None:
        """Put the cursor on a field."""
        await until(lambda: isinstance(self.app.focused, FormList), self.pilot)
        assert self.pane.fields.select(path)

    async def told(self, words: str) -> None:
        await until(lambda: any(words in one.message for one in notices_of(self.app)), self.pilot)

    async def open(self, target: ToolTarget) -> None:
        self.app.main.reveal(target)
        await until(lambda: isinstance(self.app.screen, ToolScreen) and self.pane.is_showing, self.pilot)
        await self.pilot.pause()


@asynccontextmanager
async def bench(
    fleet: FakeFleet | None = None,
    size: tuple[int, int] = SMALL,
    target: ToolTarget = ToolTarget("research", "docs", "search"),  # noqa: B008 - a value
) -> AsyncIterator[Bench]:
    fleet = fleet or fleet_with_tools()
    app = workbench(fleet)
    async with app.run_test(size=size) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await until(lambda: app.main.query_one("#agents").agents.agents, pilot)  # type: ignore[attr-defined]
        one = Bench(app, pilot, fleet)
        await one.open(target)
        yield one


def fleet_with(schema: Any) -> FakeFleet:
    fleet = FakeFleet()
    fleet.details["research"] = detail(ServerDetail("docs", (tool("search", schema),)))
    return fleet


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_a_tool_is_called_with_exactly_what_was_written(size: tuple[int, int]) -> None:
    async with bench(size=size) as one:
        # The first required field is being written already.
        await one.press(*"May invoice", "enter")
        await one.on("exact")
        await one.press("space")
        await one.press("c")
        await one.sees("ok after 0.4 s")
        await one.sees("two")
        assert one.fleet.called == [
            ("research", "docs", "search", {"query": "May invoice", "limit": 10, "exact": True}, None)
        ]


@pytest.mark.slow
async def test_absent_empty_and_null_are_three_different_things_to_send() -> None:
    async with bench() as one:
        await one.press(*"xx", "enter")
        for key, wanted in (("quotation_mark", ""), ("n", None), ("delete", ABSENT)):
            await one.on("note")
            await one.press(key)
            assert one.value.get("note", ABSENT) == wanted
        shown = {"quotation_mark": '""', "n": "null", "delete": "not sent"}
        for key, words in shown.items():
            await one.on("note")
            await one.press(key)
            await until(
                lambda words=words: (
                    words in next(line for line in screen_text(one.app).splitlines() if "note" in line)
                ),
                one.pilot,
            )
        # Opened and left empty, it is still not sent.
        await one.press("enter", "enter")
        assert "note" not in one.value


@pytest.mark.slow
async def test_a_large_number_arrives_with_all_its_digits() -> None:
    async with bench(fleet_with({"type": "object", "properties": {"id": {"type": "integer"}}})) as one:
        await one.on("id")
        await one.press("enter", *"9007199254740993", "enter", "c")
        await one.sees("ok after")
        assert one.fleet.called[0][3] == {"id": 9_007_199_254_740_993}


@pytest.mark.slow
async def test_what_cannot_be_taken_stays_where_it_is_written_with_the_reason() -> None:
    async with bench() as one:
        await one.press(*"xx", "enter")
        await one.on("limit")
        await one.press("enter", "backspace", "backspace", *"ten", "enter")
        await one.sees("not a whole number")
        assert one.pane.editor.text == "ten"
        assert one.value["limit"] == 10
        # Nothing is called with the value of before, and nothing is lost.
        await one.press("ctrl+r")
        assert one.fleet.called == []
        await one.press("escape")
        await until(lambda: not one.pane.writing, one.pilot)
        assert one.value["limit"] == 10


@pytest.mark.slow
async def test_mistakes_are_told_at_their_field_and_can_be_sent_after_a_question() -> None:
    async with bench() as one:
        await one.press(*"x", "enter")
        await one.on("limit")
        await one.press("enter", "backspace", "backspace", *"99", "enter")
        await one.sees("must be at most 50")
        await one.sees("must have 2 characters at least")
        await one.press("c")
        await one.sees("2 fields are not as the schema says. Call it anyway?")
        await one.press("n")
        assert one.fleet.called == []
        await until(lambda: isinstance(one.app.focused, FormList), one.pilot)
        await one.press("c")
        await one.sees("Call it anyway?")
        await one.press("y")
        await one.sees("ok after")
        assert one.fleet.called[0][3] == {"query": "x", "limit": 99}


@pytest.mark.slow
async def test_json_and_fields_are_two_views_of_the_same_arguments() -> None:
    async with bench() as one:
        await one.press(*"xx", "enter", "2")
        area = one.app.screen.query_one("#tool-json", TextArea)
        await until(lambda: area.has_focus, one.pilot)
        assert json.loads(area.text) == {"limit": 10, "query": "xx"}
        area.load_text('{"query": "yy", "unheard": {"of": [1]}}')
        await until(lambda: one.value == {"query": "yy", "unheard": {"of": [1]}}, one.pilot)
        await one.press("escape")
        await one.on("unheard")
        await one.sees("not in the tool's schema")
        await one.on("exact")
        await one.press("space", "2")
        await until(
            lambda: json.loads(area.text) == {"query": "yy", "unheard": {"of": [1]}, "exact": True}, one.pilot
        )


@pytest.mark.slow
async def test_half_written_json_is_neither_changed_nor_sent() -> None:
    async with bench() as one:
        await one.press(*"xx", "enter", "2")
        area = one.app.screen.query_one("#tool-json", TextArea)
        await until(lambda: area.has_focus, one.pilot)
        area.load_text('{"query": "xx", "tags": ["a"]}')
        await until(lambda: one.value.get("tags") == ["a"], one.pilot)
        area.move_cursor(area.document.end)
        for count in range(1, 7):
            await one.press("backspace")
            assert area.text == '{"query": "xx", "tags": ["a"]}'[:-count]
        await one.sees("JSON: line 1")
        await one.press("ctrl+r")
        await one.told("The JSON cannot be sent: line 1")
        assert one.fleet.called == []
        # Elsewhere and back: it is as it was left.
        await one.press("escape")
        await one.sees("JSON: line 1")
        await one.press("2")
        await until(lambda: area.has_focus, one.pilot)
        assert area.text == '{"query": "xx", "tags": '


@pytest.mark.slow
async def test_lists_objects_and_variants_grow_by_keys() -> None:
    async with bench() as one:
        await one.press(*"xx", "enter")
        await one.on("tags")
        await one.press("a", *"one", "enter")
        await one.on("tags")
        await one.press("a", *"two", "enter")
        await one.on("tags", 0)
        await one.press("delete")
        await one.on("range")
        await one.press("enter")
        await one.on("range", "from")
        await one.press("enter", *"2026-05-31", "enter")
        await one.on("where")
        await one.press("v")
        await until(lambda: isinstance(one.app.screen, ChoiceScreen), one.pilot)
        await one.press("down", "enter")
        await until(lambda: isinstance(one.app.screen, ToolScreen), one.pilot)
        await one.on("where")
        await one.press("right")
        await one.on("where", "id")
        await one.press("enter", *"7", "enter")
        assert one.value == {
            "limit": 10,
            "query": "xx",
            "tags": ["two"],
            "range": {"from": "2026-05-31"},
            "where": {"id": 7},
        }
        assert one.pane.form.mistakes.fields == {}


@pytest.mark.slow
async def test_choices_are_chosen_from_a_list_or_one_after_the_other() -> None:
    async with bench() as one:
        await one.press(*"xx", "enter")
        await one.on("kind")
        await one.press("enter")
        await until(lambda: isinstance(one.app.screen, ChoiceScreen), one.pilot)
        await one.press(*"cod", "enter")
        await until(lambda: one.value.get("kind") == "code", one.pilot)
        await one.on("kind")
        await one.press("space")
        assert one.value["kind"] == "page"
        await one.press("n")
        assert one.value["kind"] is None


@pytest.mark.slow
async def test_tab_goes_from_field_to_field() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        "required": ["a"],
    }
    async with bench(fleet_with(schema)) as one:
        await one.press(*"x y", "tab", *"5", "enter")
        await until(lambda: one.value == {"a": "x y", "b": 5}, one.pilot)


@pytest.mark.slow
async def test_lines_can_be_broken_and_any_field_written_as_json() -> None:
    async with bench() as one:
        await one.press(*"one", "alt+enter", *"two", "enter")
        assert one.value["query"] == "one\ntwo"
        await one.on("limit")
        await one.press("e", "backspace", "backspace", *'"7"', "enter")
        assert one.value["limit"] == "7"
        await one.sees("must be integer")
        # Written again it is JSON still: as a number it would be something else.
        await one.press("up")
        await one.on("limit")
        await one.press("enter")
        assert one.pane.editor.text == '"7"'


@pytest.mark.slow
async def test_the_last_arguments_of_each_tool_come_back() -> None:
    async with bench() as one:
        await one.press(*"remembered", "enter", "c")
        await one.sees("ok after")
        await one.press("escape", "escape", "escape")
        await until(lambda: one.app.screen is one.app.main, one.pilot)
        await one.open(ToolTarget("research", "docs", "search"))
        assert one.value == {"limit": 10, "query": "remembered"}
        await one.press("X")
        assert one.value == {"limit": 10}


@pytest.mark.slow
async def test_the_token_of_a_variable_goes_along_and_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "tok-5f3b9c1d7e"
    monkeypatch.setenv("DESK_TOKEN", secret)
    async with bench() as one:
        await one.press(*"xx", "enter", "b", *"DESK_TOKEN", "enter")
        await one.sees("bearer $DESK_TOKEN ••••••")
        await one.press("c")
        await one.sees("ok after")
        assert one.fleet.called[0][4] == secret
        assert secret not in screen_text(one.app)
        memory = one.pane._memory.last(("research", "docs", "search"))
        assert memory is not None
        assert secret not in repr(memory)
        assert memory.variable == "DESK_TOKEN"


@pytest.mark.slow
async def test_a_variable_that_is_not_set_and_a_pasted_token_are_refused() -> None:
    async with bench() as one:
        await one.press(*"xx", "enter", "b", *"NO_SUCH_TOKEN", "enter", "c")
        await one.told("NO_SUCH_TOKEN is not set")
        await one.press("b")
        one.pane.editor.area.load_text("eyJhbGciOi.J9-x")
        await one.press("enter")
        await one.sees("not the name of a variable")
        assert one.pane._variable == "NO_SUCH_TOKEN"
        assert one.fleet.called == []


@pytest.mark.slow
async def test_a_token_is_typed_unseen_goes_along_and_is_forgotten_with_the_form() -> None:
    secret = "tok-5f3b9c1d7e"
    async with bench() as one:
        await one.press(*"xx", "enter", "b", *"ask", "enter")
        await until(lambda: isinstance(one.app.screen, LineScreen), one.pilot)
        await one.press(*"no token", "enter")
        await until(lambda: "no spaces" in screen_text(one.app), one.pilot)
        await one.press(*["backspace"] * 8, *secret)
        assert secret not in screen_text(one.app)
        await one.press("enter")
        await one.sees("bearer typed ")
        assert redact_text(secret) != secret
        await one.press("c")
        await one.sees("ok after")
        assert one.fleet.called[0][4] == secret
        assert secret not in screen_text(one.app)
        memory = one.pane._memory.last(("research", "docs", "search"))
        assert memory is not None
        assert memory.variable == ""
        await one.press("escape", "b", "enter")  # nothing written: none goes along
        await until(lambda: "bearer typed" not in screen_text(one.app), one.pilot)
        assert redact_text(secret) == secret


class Waiting(FakeFleet):
    """A fleet whose tool answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.details["research"] = detail(ServerDetail("docs", (tool("search", {}),)))
        self.ended = 0
        self.go = asyncio.Event()

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        self.called.append((agent, server, tool, dict(arguments), bearer))
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended += 1
            raise
        raise Fault(FaultType.UPSTREAM, "the tool broke [not markup]")


async def test_a_call_shows_its_time_and_escape_ends_it() -> None:
    fleet = Waiting()
    async with bench(fleet) as one:
        await one.press("c")
        await one.sees("calling 0 s")
        await one.press("c")
        await one.press("escape")
        await one.sees("The call was ended here.")
        assert (len(fleet.called), fleet.ended) == (1, 1)
        assert isinstance(one.app.screen, ToolScreen)


async def test_leaving_the_screen_ends_the_call() -> None:
    fleet = Waiting()
    async with bench(fleet) as one:
        await one.press("c")
        await until(lambda: fleet.called, one.pilot)
        await one.app.pop_screen()
        await until(lambda: fleet.ended == 1, one.pilot)


async def test_a_failure_is_a_result_to_read_and_to_copy() -> None:
    fleet = Waiting()
    fleet.go.set()
    async with bench(fleet) as one:
        await one.press("c")
        await one.sees("failed after")
        await one.sees("the tool broke [not markup]")
        await one.press("y")
        await until(lambda: one.app.clipboard == "the tool broke [not markup]", one.pilot)


async def test_a_result_is_text_or_json_and_can_be_copied() -> None:
    async with bench() as one:
        await one.press(*"xx", "enter", "c")
        await one.sees("ok after")
        await one.press("t")
        await one.sees('"big": 9007199254740993')
        await one.press("y")
        await until(lambda: '"text": "two\\nlines"' in one.app.clipboard, one.pilot)


@pytest.mark.slow
async def test_a_fleet_that_may_only_be_looked_at_calls_nothing() -> None:
    fleet = fleet_with_tools()
    fleet.can_control = False
    async with bench(fleet) as one:
        await one.press(*"xx", "enter", "c")
        await one.told("this token may only read")
        assert fleet.called == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema",
    [
        "not a schema",
        {
            "type": "object",
            "properties": {f"p{n}": {"$ref": "#"} for n in range(3_000)},
            "required": ["p1", "zz"],
        },
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#"}]}}},
        {
            "properties": {
                "[@click=app.quit]x[/]": {"type": "string", "description": "[/no]\u001b[2J\u202e", "title": 5}
            }
        },
        {"properties": {"a": {"enum": ["x" * 5_000] * 5_000}, "b": {"pattern": "^(a+)+$", "type": "string"}}},
        {"properties": [], "required": 7, "type": ["object", 3]},
    ],
)
async def test_hostile_schemas_leave_the_form_usable(schema: Any) -> None:
    async with bench(fleet_with(schema)) as one:
        await one.press("escape") if one.pane.writing else None
        for key in ("down", "enter", "escape", "v", "escape", "right", "left", "end", "home", "2"):
            if isinstance(one.app.screen, ToolScreen) or key == "escape":
                await one.press(key)
            if not isinstance(one.app.screen, ToolScreen | ChoiceScreen):
                await one.open(ToolTarget("research", "docs", "search"))
        while isinstance(one.app.screen, ChoiceScreen):
            await one.press("escape")
        one.pane.action_section("json")
        one.app.screen.query_one("#tool-json", TextArea).load_text('{"b": "' + "a" * 40 + '!"}')
        await until(lambda: "b" in one.value, one.pilot)
        text = screen_text(one.app)
        assert "\u001b" not in text
        assert "\u202e" not in text
        one.pane.action_call()
        await until(lambda: one.app.screen.query_one("#ask").display or one.fleet.called, one.pilot)
        assert one.app.is_running


def test_the_schema_of_these_tests_is_one() -> None:
    assert json.loads(json.dumps(SEARCH)) == SEARCH


@pytest.mark.slow
async def test_keys_typed_ahead_go_where_they_are_meant_and_none_is_lost() -> None:
    async with bench() as one:
        # All were handed to the line before it looked at the first: nothing runs between two of them.
        for key in (*"May", "enter", "down", "down", "down", "n"):
            one.pane.editor.area._forward_event(events.Key(key, None))
        await until(lambda: "note" in one.value, one.pilot)
        assert one.value == {"limit": 10, "query": "May", "note": None}
