"""Answers of model servers that are odd but real: calls are made, errors are shown in the server's words."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
import pytest_asyncio
from support.failing_models import soon_again as soon_again
from support.live import ECHO, agent_module, client, running, write_project
from support.odd_answers import CALLS, ERRORS, TEXTS, UNREADABLE, all_answers, cut_by_the_limit, unreadable
from support.odd_models import OddModels, odd_models
from support.odd_pieces import MORE_CALLS, MORE_ERRORS, MORE_TEXTS, more_answers
from support.providers import MODELS

from pallas.fleet.fleet import Fleet

CHATS = ("chat", "openai")
"""Agents whose pieces fast-agent joins itself, and those whose pieces OpenAI's library joins."""
RAW = ("TypeError", "AttributeError", "NoneType", "OpenAI", "never finished", "Traceback", "127.0.0.1")

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("soon_again")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind() -> AsyncIterator[OddModels]:
    broken = {
        f"broken_{name}_{agent}": answer
        for name, text in UNREADABLE.items()
        for agent, answer in unreadable(text).items()
    }
    async with odd_models({**all_answers(), **more_answers(), **broken, **cut_by_the_limit()}) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory, behind: OddModels) -> AsyncIterator[Fleet]:
    kinds = [model.partition(".")[0] for model in MODELS.values()]
    places = {kind: behind.base if kind in ("anthropic", "google") else f"{behind.base}/v1" for kind in kinds}
    config = {kind: {"api_key": "none", "base_url": place} for kind, place in places.items()}
    agents = {name: agent_module(name, ("echo",), model=model) for name, model in MODELS.items()}
    root = write_project(tmp_path_factory.mktemp("odd"), agents, config={**config, **ECHO})
    async with running(root) as found:
        yield found


async def said(fleet: Fleet, agent: str, odds: Iterable[str]) -> dict[str, tuple[bool, str]]:
    """What an agent answers to each oddity, and whether that is an error; a few runs at a time."""
    some = asyncio.Semaphore(6)

    async def ask(odd: str) -> tuple[bool, str]:
        async with some:
            result = await connected.call_tool("send_message", {"message": f"odd={odd}"})
        return bool(result.is_error), result.content[0].text  # type: ignore[union-attr]

    names = list(odds)
    async with client(fleet, agent) as connected:
        return dict(zip(names, await asyncio.gather(*map(ask, names)), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("agent", CALLS)
async def test_every_call_in_an_odd_answer_is_made(fleet: Fleet, agent: str) -> None:
    cases = CALLS[agent]
    expected = {odd: (False, f"results: {results}") for odd, (_, results) in cases.items()}
    assert await said(fleet, agent, cases) == expected


@pytest.mark.parametrize("odd", ["one_index", "one_id", "finish_stop"])
async def test_two_calls_with_one_index_or_id_are_two_whatever_the_reason_says(
    fleet: Fleet, odd: str
) -> None:
    assert (await said(fleet, "chat", [odd]))[odd] == (False, f"results: {CALLS['chat'][odd][1]}")


@pytest.mark.slow
@pytest.mark.parametrize("agent", CHATS)
async def test_the_text_of_an_odd_answer_is_read(fleet: Fleet, agent: str) -> None:
    assert await said(fleet, agent, TEXTS) == dict.fromkeys(TEXTS, (False, "answer"))


@pytest.mark.slow
@pytest.mark.parametrize("agent", ERRORS)
async def test_what_is_no_answer_says_why_and_is_repeated_only_if_that_may_help(
    fleet: Fleet, behind: OddModels, agent: str
) -> None:
    # DR-22
    cases = ERRORS[agent]
    behind.asked.clear()
    found = await said(fleet, agent, cases)
    assert {odd: failed for odd, (failed, _) in found.items()} == dict.fromkeys(cases, True)
    assert {odd: text for odd, (_, text) in found.items() if cases[odd][1] not in text} == {}
    assert {odd: text for odd, (_, text) in found.items() if any(raw in text for raw in RAW)} == {}
    assert dict(behind.asked) == {odd: requests for odd, (_, _, requests) in cases.items()}


@pytest.mark.slow
@pytest.mark.parametrize("agent", MODELS)
async def test_what_is_odd_about_the_pieces_of_an_answer_is_read_or_named(
    fleet: Fleet, behind: OddModels, agent: str
) -> None:
    # DR-22
    behind.asked.clear()
    expected = dict.fromkeys(MORE_TEXTS[agent], (False, "answer"))
    expected |= {odd: (False, f"results: {results}") for odd, (_, results) in MORE_CALLS[agent].items()}
    assert await said(fleet, agent, expected) == expected
    assert dict(behind.asked) == {odd: 2 if odd in MORE_CALLS[agent] else 1 for odd in expected}
    behind.asked.clear()
    found = await said(fleet, agent, MORE_ERRORS[agent])
    assert {odd: failed for odd, (failed, _) in found.items()} == dict.fromkeys(MORE_ERRORS[agent], True)
    assert {odd: text for odd, (_, text) in found.items() if MORE_ERRORS[agent][odd][1] not in text} == {}
    assert {odd: text for odd, (_, text) in found.items() if any(raw in text for raw in RAW)} == {}
    assert dict(behind.asked) == {odd: times for odd, (_, _, times) in MORE_ERRORS[agent].items()}


@pytest.mark.slow
@pytest.mark.parametrize("agent", MODELS)
async def test_a_call_whose_arguments_are_no_object_is_not_made_and_the_model_is_told(
    fleet: Fleet, behind: OddModels, agent: str
) -> None:
    odds = [f"broken_{name}_{agent}" for name in UNREADABLE]
    behind.asked.clear()
    expected = dict.fromkeys(odds, (False, "results: x its arguments are not one JSON object"))
    assert await said(fleet, agent, odds) == expected
    assert dict(behind.asked) == dict.fromkeys(odds, 2)


@pytest.mark.parametrize("agent", ["chat", "openai"])
async def test_a_call_that_the_limit_of_tokens_cuts_is_not_made_and_the_model_is_told(
    fleet: Fleet, agent: str
) -> None:
    assert await said(fleet, agent, ["cut_call"]) == {
        "cut_call": (False, "results: the limit of output tokens")
    }


@pytest.mark.parametrize("odd", ["error_200", "error_of_minimax", "html", "badjson"])
async def test_what_can_never_be_an_answer_is_asked_once(fleet: Fleet, behind: OddModels, odd: str) -> None:
    behind.asked.clear()
    failed, text = (await said(fleet, "chat", [odd]))[odd]
    assert failed, text
    assert ERRORS["chat"][odd][1] in text
    assert behind.asked[odd] == 1
