import pytest

from pallas.model import Cost
from pallas_tui.chat.chat_entry import ChatEntry
from pallas_tui.chat.token_prices import TokenPrice, price_of, tokens
from pallas_tui.settings.settings_schema import ModelPrice as SettingsPrice
from pallas_tui.widgets.chat.message_view import figures

PRICES = {
    "*": {"input": 1, "output": 2},
    "anthropic.*": {"input": 3.0, "output": 15.0},
    "anthropic.claude-haiku*": {"input": 0.8, "output": 4.0},
    "broken": {"input": "three"},
    "negative": {"input": -1, "output": 2},
}


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("anthropic.claude-haiku-4", TokenPrice(0.8, 4.0)),
        ("Anthropic.Claude-Sonnet", TokenPrice(3.0, 15.0)),
        ("openai.gpt", TokenPrice(1, 2)),
        ("broken", TokenPrice(1, 2)),
        ("negative", TokenPrice(1, 2)),
        ("", None),
    ],
)
def test_the_pattern_that_says_most_holds(model: str, price: TokenPrice | None) -> None:
    assert price_of(model, PRICES) == price


def test_prices_of_the_settings_are_understood_and_none_are_no_price() -> None:
    assert price_of("gpt-5", {"gpt-*": SettingsPrice(1.25, 10)}) == TokenPrice(1.25, 10)
    for nothing in (None, {}, [], "x", {"gpt-*": None}):
        assert price_of("gpt-5", nothing) is None


def test_what_tokens_cost() -> None:
    assert TokenPrice(3.0, 15.0).cost(1_000_000, 100_000) == pytest.approx(4.5)


def test_a_cost_that_is_not_known_says_what_is_not_known() -> None:
    assert [each.words for each in (Cost(4_200_000), Cost(None, 1), Cost(4_200_000, 1))] == [
        "$0.0042",
        "cost unknown",
        "$0.0042+",
    ]


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0"), (812, "812"), (1_234, "1.2k"), (99_960, "100k"), (999_600, "1.0M"), (3_400_000, "3.4M")],
)
def test_tokens_are_short(number: int, words: str) -> None:
    assert tokens(number) == words


def test_the_cost_of_a_conversation_is_said_where_it_says_more() -> None:
    def said(cost: Cost, spent: Cost) -> tuple[str, ...]:
        return figures(ChatEntry("assistant", "Yes.", 0.0, cost=cost, spent=spent))

    assert said(Cost(4_200_000), Cost(8_400_000)) == ("$0.0042, $0.0084 in all",)
    assert said(Cost(4_200_000), Cost(4_200_000)) == ("$0.0042",)
    assert said(Cost(None, 1), Cost(None, 2)) == ("cost unknown",)
