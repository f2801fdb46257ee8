"""Questions of a fleet that really runs, answered in the workbench: in its list and in the chat."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.approvals import approvals_project, say
from support.fleet_desk import Desk, desk
from support.notices import notices_of
from support.shell import screen_text, top
from support.survivors import effects

from pallas.model.questions import Question
from pallas_tui.screens.record_screens import QuestionFormScreen, QuestionsScreen
from pallas_tui.widgets.chat.prompt_area import PromptArea
from pallas_tui.widgets.chat.question_card import QuestionCard
from pallas_tui.widgets.questions import QuestionsPane
from pallas_tui.widgets.questions.question_form_pane import QuestionFormPane

SCHEMA = {
    "type": "object",
    "properties": {"iban": {"type": "string", "title": "IBAN"}, "instant": {"type": "boolean"}},
    "required": ["iban"],
}


@asynccontextmanager
async def asking(here: Desk, message: str = "have it noted", agent: str = "front") -> AsyncIterator[Any]:
    """A caller over REST asks, and waits for its answer."""
    async with here.http() as http:
        task = asyncio.create_task(say(http, agent, message))
        try:
            yield task
        finally:
            task.cancel()


async def opened(here: Desk) -> QuestionsPane:
    await here.press("alt+q")
    await here.until(
        lambda: isinstance(here.app.screen, QuestionsScreen) and here.app.screen.query(QuestionsPane)
    )
    return here.app.screen.query_one(QuestionsPane)


async def pressed(here: Desk, pane: QuestionsPane, key: str) -> None:
    """Press the key once the question was shown for long enough."""
    await here.until(lambda: pane.may_answer)
    await here.press(key)


@pytest.mark.slow
async def test_a_question_from_rest_is_announced_read_and_answered(tmp_path: Path) -> None:
    root = approvals_project(tmp_path / "p")
    async with desk(root) as here:
        assert "question" not in top(here.app)
        async with asking(here) as answer:
            await here.sees("1 question open")
            await here.until(lambda: [each.title for each in notices_of(here.app)] == ["clerk asks you"])
            assert [each.message for each in notices_of(here.app)] == ["shelf__note (alt+q)"]
            pane = await opened(here)
            await here.sees(
                "shelf__note", '"text": "it"', "front → office → clerk", "its run", "I ask.", "1 open", "left"
            )
            assert not effects(root)
            await pressed(here, pane, "a")
            await here.sees("allowed once", "by an operator")
            assert "noted it" in (await answer)["text"]
            assert effects(root) == ["note it"]
        await here.press("escape")
        await here.until(lambda: "question" not in top(here.app))
        await here.sees("asks: shelf__note")
        async with asking(here) as answer:
            await here.until(lambda: "question" in top(here.app))  # else the one before is selected
            pane = await opened(here)
            await pressed(here, pane, "x")
            assert "A person declined this call" in (await answer)["text"]
            await here.sees("refused", "allowed once", "2 questions")
        assert effects(root) == ["note it"]


@pytest.mark.slow
async def test_always_holds_for_the_calls_that_follow(tmp_path: Path) -> None:
    script = """
rules:
  - when: {last: user}
    call: [{tool: shelf__note, arguments: {text: "one"}}]
  - when: {last: tool, text: noted one}
    call: [{tool: shelf__note, arguments: {text: "two"}}]
  - when: {last: tool}
    say: "done: {{ result }}"
"""
    root = approvals_project(tmp_path / "p", script=script)
    async with desk(root) as here, asking(here, "note both", "clerk") as answer:
        pane = await opened(here)
        await here.sees("shelf__note", '"text": "one"')
        await pressed(here, pane, "A")
        assert "noted two" in (await answer)["text"]
        await here.sees("allowed always", "1 question")
        assert effects(root) == ["note one", "note two"]


@pytest.mark.slow
async def test_the_conversation_that_waits_shows_it_and_never_takes_the_focus(tmp_path: Path) -> None:
    root = approvals_project(tmp_path / "p")
    async with desk(root) as here:
        await here.until(lambda: not here.view._prompt.disabled)
        here.view.focus_prompt()
        await here.press(*"have it noted", "enter")
        await here.sees("asks you", "shelf__note", "allow once", "refuse", "waits for your answer")
        assert isinstance(here.app.focused, PromptArea)
        assert not here.app._notifications  # it can be seen
        await here.press("a", "x")
        await here.until(lambda: here.view.draft == "ax")
        assert here.view.conversation.run is not None
        assert not effects(root)
        await here.press("alt+y")
        await here.until(lambda: isinstance(here.app.focused, QuestionCard))
        card = here.view.card
        await here.press("escape")
        await here.until(lambda: isinstance(here.app.focused, PromptArea))
        await here.press("alt+y")
        await here.until(lambda: card.may_answer)
        await here.press("a")
        await here.sees("shelf__note: allowed by an operator.", "noted it")
        assert effects(root) == ["note it"]
        await here.until(lambda: not card.display)
        await here.until(lambda: isinstance(here.app.focused, PromptArea))
        assert here.view.draft == "ax"


@pytest.mark.slow
async def test_a_form_is_filled_in(tmp_path: Path) -> None:
    root = approvals_project(tmp_path / "p", tools={})
    async with desk(root) as here, asking(here, "wait for it", "clerk"):
        await here.until(lambda: effects(root))
        ended = ask_form(here)
        await here.sees("1 question open")
        pane = await opened(here)
        await here.sees("To which account?", "fields: iban, instant")
        await pressed(here, pane, "a")
        await here.until(
            lambda: (
                isinstance(here.app.screen, QuestionFormScreen) and here.app.screen.query(QuestionFormPane)
            )
        )
        await here.sees("iban*", "To which account?")
        await here.press(*"DE02", "enter", "c")
        found = await asyncio.wrap_future(ended)
        assert (found.action, found.content) == ("accept", {"iban": "DE02"})
        await here.until(lambda: isinstance(here.app.screen, QuestionsScreen))
        await here.sees("filled in", "iban: DE02")
        # One that ends elsewhere closes its form.
        ended = ask_form(here)
        await here.sees("1 open")
        await here.press("home")
        await pressed(here, pane, "enter")
        await here.sees("required")
        (question,) = here.app.questions.open
        async with here.http() as http:
            path = f"/questions/{question.id}/answer"
            assert (await http.post(path, json={"action": "decline"})).status_code == 200
        await here.until(lambda: isinstance(here.app.screen, QuestionsScreen))
        assert (await asyncio.wrap_future(ended)).action == "decline"
        (root / "door").touch()


def ask_form(here: Desk) -> Any:
    """Have the run that waits ask for a form."""

    async def ask() -> Question:
        run = next(iter(here.fleet.kernel.in_flight))
        return await here.fleet.questions.form(run_id=run.id, message="To which account?", schema=SCHEMA)

    loop = here.app.fleet._loop  # type: ignore[union-attr]
    return asyncio.run_coroutine_threadsafe(ask(), loop)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["a", "x"])
async def test_a_key_that_comes_at_once_answers_nothing(tmp_path: Path, key: str) -> None:
    root = approvals_project(tmp_path / "p")
    async with desk(root) as here:
        pane = await opened(here)
        await here.sees("No questions yet.")
        async with asking(here):
            await here.until(lambda: pane.rows.rows)
            pane._seen = pane._seen[0], float("inf")  # as if it had come into view just now
            await here.press(key)
            await here.pilot.pause()
            assert "1 open" in screen_text(here.app)
            assert not effects(root)
