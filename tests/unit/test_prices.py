"""What questions to models cost: the project's own prices, and those of the list."""

import subprocess
import sys
from decimal import Decimal

import pytest
from genai_prices import Usage, calc_price

from pallas.model import Cost, StepUsage
from pallas.model.money import (
    MAX_MONEY,
    believed,
    cost_fields,
    cost_in,
    nano_usd,
    usd_decimal,
    usd_text,
)
from pallas.model.run_values import MAX_TOKENS
from pallas.prices.price_book import PriceBook, PriceRule, is_own_network

_OWN = PriceRule("openai.mine*", Decimal(3), Decimal(15), Decimal("0.3"), Decimal("3.75"))


def _listed(provider: str, model: str, **counts: int) -> int:
    """What the library itself says, in nano-US-dollars."""
    price = calc_price(Usage(**counts), model, provider_id=provider)
    return round(price.total_price * 10**9)


def test_a_price_of_the_project_counts_cached_tokens_and_cache_writes_apart() -> None:
    book = PriceBook((_OWN, PriceRule("*", Decimal(1), Decimal(1))))
    usage = StepUsage(1000, 100, cached=600, cache_writes=200, reasoning=50)
    assert book.price("openai", "mine-2", usage) == 200 * 3000 + 600 * 300 + 200 * 3750 + 100 * 15000
    assert book.price("openai", "other", StepUsage(2, 1)) == 3000
    # Without prices of their own they cost what other input does.
    assert PriceBook((PriceRule("m", Decimal(2), Decimal(0)),)).price("x", "m", usage) == 1000 * 2000


@pytest.mark.parametrize(
    ("name", "theirs", "model", "usage", "counts"),
    [
        ("openai", "openai", "gpt-4o", StepUsage(1000, 50, 800), {"cache_read_tokens": 800}),
        ("responses", "openai", "o3", StepUsage(1000, 50, reasoning=40), {"output_reasoning_tokens": 40}),
        (
            "anthropic",
            "anthropic",
            "claude-sonnet-4-5",
            StepUsage(1000, 50, 300, 200, cache_writes_1h=150),
            {
                "cache_read_tokens": 300,
                "cache_write_tokens": 200,
                "cache_write_1h_tokens": 150,
                "cache_write_5m_tokens": 50,
            },
        ),
        (
            "google",
            "google",
            "gemini-2.5-flash-image",
            StepUsage(1000, 1300, output_image=1290),
            {"output_image_tokens": 1290},
        ),
        (
            "google",
            "google",
            "gemini-2.5-flash",
            StepUsage(1000, 50, 100, input_audio=400),
            {"cache_read_tokens": 100, "input_audio_tokens": 400, "cache_audio_read_tokens": 0},
        ),
    ],
)
def test_a_model_of_the_list_costs_what_the_library_says(
    name: str, theirs: str, model: str, usage: StepUsage, counts: dict[str, int]
) -> None:
    assert usage.input is not None
    assert usage.output is not None
    expected = _listed(theirs, model, input_tokens=usage.input, output_tokens=usage.output, **counts)
    assert PriceBook().price(name, model, usage, None) == expected > 0


def test_the_price_is_that_of_the_time_and_of_the_address() -> None:
    book, usage = PriceBook(), StepUsage(1_000_000, 0)
    before, after = (book.price("openai", "o3", usage, at) for at in (1_735_689_600.0, 1_767_225_600.0))
    assert (before, after) == (10 * 10**9, 2 * 10**9)
    # An address of another provider says who is paid.
    deepseek = book.price("openai", "deepseek-chat", usage, None, "https://api.deepseek.com/v1/chat")
    assert deepseek == book.price("deepseek", "deepseek-chat", usage)
    # A gateway's own address says nothing.
    assert book.price("openai", "gpt-4o", usage, None, "https://llm.example.com/v1") == 2_500_000_000


@pytest.mark.parametrize(
    ("provider", "model", "usage", "url"),
    [
        ("openai", "gpt-4o", StepUsage(), ""),
        ("openai", "gpt-4o", StepUsage(1, None), ""),
        ("openai", "gpt-4o", StepUsage(1, 1), "http://127.0.0.1:8000/v1"),
        ("openai", "gpt-4o", StepUsage(1, 1), "http://vllm:8000/v1"),
        ("openai", "scripted", StepUsage(1, 1), ""),
        ("fast-agent", "passthrough", StepUsage(1, 1), ""),
        ("no-such", "no-such", StepUsage(1, 1), ""),
        ("", "", StepUsage(1, 1), ""),
    ],
)
def test_what_is_not_known_is_unknown_and_not_zero(
    provider: str, model: str, usage: StepUsage, url: str
) -> None:
    assert PriceBook().price(provider, model, usage, None, url) is None


def test_a_model_of_ones_own_network_may_cost_what_another_does() -> None:
    book = PriceBook((PriceRule("generic.*", like="openai.gpt-4o"),))
    price = book.price("generic", "ours", StepUsage(1000, 0), None, "http://10.0.0.8/v1")
    assert price == _listed("openai", "gpt-4o", input_tokens=1000, output_tokens=0)


def test_the_offline_model_of_the_project_costs_nothing_and_other_local_ones_are_unknown() -> None:
    book, usage = PriceBook(offline_port=24389), StepUsage(10, 10)
    for host in ("127.0.0.1", "localhost", "[::1]"):
        assert book.price("generic", "scripted", usage, None, f"http://{host}:24389/v1") == 0
    assert book.price("generic", "scripted", StepUsage(None, None), None, "http://127.0.0.1:24389/v1") == 0
    for url in ("http://127.0.0.1:24390/v1", "http://10.0.0.8:24389/v1", "http://127.0.0.1:x/v1", ""):
        assert book.price("generic", "scripted", usage, None, url) is None
    own = PriceBook((PriceRule("scripted", Decimal(1), Decimal(1)),), offline_port=24389)
    assert own.price("generic", "scripted", usage, None, "http://127.0.0.1:24389/v1") == 20_000


def test_hosts_of_ones_own_network_are_told_from_others() -> None:
    own = ("http://localhost:1/v1", "http://[::1]/v1", "http://192.168.1.7", "https://llm.internal/v1")
    assert all(map(is_own_network, own))
    assert not any(map(is_own_network, ("", "https://api.openai.com/v1", "https://8.8.8.8/", "http://[")))


@pytest.mark.slow
def test_the_list_is_loaded_with_the_first_price_that_needs_it() -> None:
    program = (
        "import sys; from pallas.model import StepUsage; from decimal import Decimal\n"
        "from pallas.prices.price_book import PriceBook, PriceRule\n"
        "book = PriceBook((PriceRule('mine', Decimal(1), Decimal(1)),)); used = StepUsage(1, 1)\n"
        "book.prepare('openai', 'mine'); book.prepare('openai', 'x', 'http://127.0.0.1/v1')\n"
        "book.price('openai', 'mine', used); book.price('openai', 'x', used, None, 'http://127.0.0.1/v1')\n"
        "assert 'genai_prices' not in sys.modules\n"
        "book.prepare('openai', 'gpt-4o')\n"
        "assert book.price('openai', 'gpt-4o', used)\n"
        "assert 'genai_prices' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_money_is_shown_with_what_is_not_known() -> None:
    assert usd_text(12_340_000) == "$0.0123"
    assert usd_text(99_999) == "<$0.0001"
    assert usd_text(0) == "$0"
    assert usd_text(1_234_567_890_123) == "$1,234.57"
    assert (usd_text(12_340_000, 2), usd_text(5, 1), usd_text(0, 1)) == ("$0.0123+", "$0+", "$0+")
    assert (usd_text(None, 1), usd_text(None)) == ("unknown", "")


@pytest.mark.parametrize("nano", [0, 1, 12_340_000, 10**9, 1_234_567_890_123])
def test_money_in_documents_is_exact(nano: int) -> None:
    assert nano_usd(usd_decimal(nano)) == nano


def test_a_text_that_is_no_amount_is_none() -> None:
    assert [nano_usd(each) for each in ("", "x", "-1", "nan", "snan", "inf", "1e30")] == [None] * 7
    assert nano_usd("1e999999") is None and nano_usd("1e-999999") == 0
    assert (nano_usd("0.5"), usd_decimal(12_340_000)) == (500_000_000, "0.01234")


def test_no_cost_is_more_than_a_database_column_holds() -> None:
    rule = PriceRule("*", Decimal(1_000_000), Decimal(1_000_000))
    dear = rule.price(StepUsage(MAX_TOKENS, MAX_TOKENS))
    assert Cost.sum(Cost(dear) for _ in range(100_000)) == Cost(MAX_MONEY)
    assert (believed(dear), believed(dear + 1), believed(-1), believed(None)) == (dear, None, None, None)


def test_a_sum_is_unknown_only_if_all_of_it_is() -> None:
    assert Cost.sum([]) == Cost()
    assert Cost.sum([Cost(None, 1), Cost(None, 1)]) == Cost(None, 2)
    assert Cost.sum([Cost(1), Cost(None, 1), Cost(2)]) == Cost(3, 1)


@pytest.mark.parametrize("cost", [Cost(), Cost(None, 2), Cost(0), Cost(12_340_000, 1)])
def test_a_cost_is_the_same_after_it_was_sent(cost: Cost) -> None:
    assert cost_in(cost_fields(cost)) == cost
    assert cost_in(cost_fields(Cost(5), cost), tree=True) == cost
    assert cost_in({"cost": "much", "unpriced": -1}) == cost_in({}) == Cost()
