"""The palette: actions first, then whatever the panes know by name, quickly and in slices."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.shell import FakeChat, screen_text, workbench
from support.waiting import until
from textual.command import CommandList, CommandPalette
from textual.widgets import Input

from pallas_tui import palette
from pallas_tui.app import Workbench
from pallas_tui.fuzzy import FuzzyQuery
from pallas_tui.palette import MOST, PaletteCommand, PaletteProvider, entities
from pallas_tui.settings import Settings
from pallas_tui.targets import AgentTarget, ConversationTarget, Entity, RunTarget
from pallas_tui.widgets.agents import AgentsPane

WIDE = (120, 40)


def known(count: int) -> list[Entity]:
    return [Entity(f"run number {index}", "a run", RunTarget(f"r{index}")) for index in range(count)]


def choices(app: Workbench) -> list[str]:
    """What the palette lists, a line of text each."""
    listed = app.screen.query_one(CommandList)
    return [str(listed.get_option_at_index(index).prompt) for index in range(listed.option_count)]


async def test_actions_come_first_and_what_is_found_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        FakeChat,
        "entities",
        lambda self: [
            Entity("help with the invoice", "talks to research", ConversationTarget("t1")),
            Entity("help run", "ended ok", RunTarget("r1")),
        ],
    )
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("ctrl+p", *"help")
        await until(lambda: any("invoice" in choice for choice in choices(app)), pilot)
        listed = choices(app)
        assert listed[0].startswith("Help  f1 ?\n")
        kinds = [choice.split()[0] for choice in listed if "invoice" in choice or "help run" in choice]
        assert set(kinds) == {"conversation", "run"}
        first_found = min(index for index, choice in enumerate(listed) if choice.split()[0] in set(kinds))
        assert all(choice.split()[0] not in ("conversation", "run") for choice in listed[:first_found])


@pytest.mark.slow
async def test_agents_that_begin_so_come_before_actions_and_actions_say_their_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = [Entity(name, "", AgentTarget(name)) for name in ("ask the rest", "Quitter", "quiet")]
    monkeypatch.setattr(AgentsPane, "entities", lambda self: [Entity("quit", "", RunTarget("r")), *named])
    app = workbench(settings=Settings(keys={"settings": "f9,comma"}))
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("ctrl+p")
        await until(lambda: isinstance(app.screen, CommandPalette) and choices(app), pilot)
        listed = choices(app)
        assert any(choice.startswith("Settings  f9 ,\n") for choice in listed)  # the user's keys
        assert any(choice.startswith("Reset layout\n") for choice in listed)  # it has none
        await pilot.press(*"QUI")
        await until(lambda: "Quitter" in "".join(choices(app)[:2]), pilot)
        listed = [choice.split("\n")[0] for choice in choices(app)]
        assert {choice.split()[1] for choice in listed[:2]} == {"Quitter", "quiet"}
        assert listed[2] == "Quit  ^q"
        assert listed.index("run           quit") > 2
        await pilot.press("backspace", "backspace", "backspace", *"rest")
        await until(lambda: any("ask the rest" in choice for choice in choices(app)), pilot)
        assert choices(app)[0].startswith("Restart")  # the agent does not begin so


@pytest.mark.slow
async def test_choosing_an_entity_goes_to_its_pane_and_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(AgentsPane, "reveal", lambda self, target: shown.append(target) or True)
    monkeypatch.setattr(AgentsPane, "entities", lambda self: [Entity("visionary", "", AgentTarget("vision"))])
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("ctrl+p", *"visionary")
        await until(lambda: any("visionary" in choice for choice in choices(app)), pilot)
        await pilot.press("enter")
        await until(lambda: shown == [AgentTarget("vision")], pilot)
        assert app.main.current == "agents"


async def test_a_pane_that_fails_to_list_what_it_has_takes_nothing_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(self: object) -> Iterable[Entity]:
        yield Entity("before the mistake", "", AgentTarget("a"))
        raise RuntimeError("no list")

    monkeypatch.setattr(AgentsPane, "entities", broken)
    monkeypatch.setattr(FakeChat, "entities", lambda self: known(2))
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        found = [command.title for command in entities(app.main)]
        assert {"before the mistake", "run number 0", "run number 1"} <= set(found)


@pytest.mark.slow
async def test_what_others_wrote_is_never_markup_in_the_palette(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = Entity("[@click=app.quit]press[/] me", "[/nothing] [bold]x", RunTarget("r"))
    monkeypatch.setattr(FakeChat, "entities", lambda self: [evil])
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("ctrl+p", *"press me")
        await until(lambda: any("[@click=app.quit]press[/] me" in choice for choice in choices(app)), pilot)
        assert "[/nothing] [bold]x" in screen_text(app)


async def test_thousands_of_names_are_searched_in_slices_and_few_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a search goes on the loop turns: whatever else waits there has its turn."""
    monkeypatch.setattr(palette, "_SLICE", 0.0)
    monkeypatch.setattr(FakeChat, "entities", lambda self: known(5_000))
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        provider = PaletteProvider(app.main)
        await provider.startup()
        turns = 0
        searching = True

        async def others() -> None:
            nonlocal turns
            while searching:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(others())
        hits = [hit async for hit in provider.search("run number 49")]
        searching = False
        await task
        found = [hit.text for hit in hits if hit.text and hit.text.startswith("run number 49")]
        assert "run number 49" in found
        assert len(hits) <= 2 * MOST
        assert turns > 50  # 5,000 names are looked at 64 at a time
        # A name typed in full is the best of those that are found.
        best = max(
            (hit for hit in hits if (hit.text or "").startswith("run number")), key=lambda hit: hit.score
        )
        assert best.text == "run number 49"


@pytest.mark.slow
async def test_entities_are_not_asked_for_before_something_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(FakeChat, "entities", lambda self: asked.append(1) or known(3))
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await pilot.press("ctrl+p")
        await until(lambda: isinstance(app.screen, CommandPalette) and choices(app), pilot)
        assert asked == []
        await pilot.press("r")
        await until(lambda: asked == [1], pilot)
        await pilot.press("u")
        await until(lambda: any("run number" in choice for choice in choices(app)), pilot)
        assert asked == [1]


@pytest.mark.slow
async def test_a_theme_is_seen_while_it_is_looked_for_and_stays_only_when_chosen() -> None:
    app = workbench()
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await app.run_action("change_theme")
        await until(lambda: isinstance(app.screen, CommandPalette), pilot)
        await until(lambda: app.screen.query_one(CommandList).highlighted == 0, pilot)
        await pilot.pause()
        assert app.theme == "textual-dark"  # the first of the list is the one in use
        assert app.screen.styles.background.a == 0  # the others are seen as they are
        await pilot.press(*"gruvbox")
        await until(lambda: app.theme == "gruvbox", pilot)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main and app.theme == "textual-dark", pilot)
        await app.run_action("change_theme")
        await until(lambda: isinstance(app.screen, CommandPalette), pilot)
        await pilot.press(*"contrast-light")
        await until(lambda: app.theme == "pallas-contrast-light", pilot)
        await pilot.press("enter")
        await until(lambda: app.screen is app.main, pilot)
        assert app.theme == "pallas-contrast-light"
        assert app.settings.theme == "pallas-contrast-light"


# How well a name matches


def test_whole_words_count_more_than_letters_and_the_start_more_than_the_inside() -> None:
    query = FuzzyQuery("feed")
    ranked = ["feed", "feed one", "show feed", "newsfeed agency", "f e something e d"]
    scores = [query.score(name) for name in ranked]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] == 0  # all over the place
    assert query.score("fleet") == 0


def test_every_word_must_match_and_a_kind_may_be_one_of_them() -> None:
    assert FuzzyQuery("run invoice").score("the May invoice", "run") > 0
    assert FuzzyQuery("agent invoice").score("the May invoice", "run") == 0
    assert FuzzyQuery("run").score("the May invoice", "run") == 0
    assert FuzzyQuery("  ").score("anything") == 0


def test_letters_in_their_order_match_and_are_marked() -> None:
    assert FuzzyQuery("sofd").score("show feed") == 0
    assert FuzzyQuery("shfd").score("show feed") > 0
    assert FuzzyQuery("shofe").score("show feed") > 0
    assert FuzzyQuery("shofe").spans("Show Feed") == [(0, 3), (5, 7)]
    assert FuzzyQuery("feed").spans("Show Feed") == [(5, 9)]
    assert FuzzyQuery("x").spans("İx") == []  # its small form is longer: nothing is marked in the wrong place


def test_the_list_is_cut_and_equal_names_stay_in_their_order() -> None:
    async def best() -> list[str]:
        among = [PaletteCommand(f"same {index:03}", "", lambda: None) for index in range(200)]
        return [command.title for command, _ in await palette._best(among, FuzzyQuery("same"))]

    assert asyncio.run(best()) == [f"same {index:03}" for index in range(MOST)]


def test_only_so_much_of_a_query_and_a_name_is_looked_at() -> None:
    assert len(FuzzyQuery("a " * 10_000).words) == 100
    assert FuzzyQuery("end").score("x" * 200 + "end") == 0
    assert FuzzyQuery("end").score("x" * 190 + "end") > 0


def test_a_kind_of_its_own_comes_before_that_of_the_target() -> None:
    entity = cast(Entity, SimpleNamespace(title="t", help="", target=AgentTarget("a"), kind="tool"))
    assert palette.kind_of(entity) == "tool"
    assert palette.kind_of(Entity("t", "", RunTarget("r"))) == "run"
