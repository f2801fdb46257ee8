"""What ``prices:`` may say, and what is said of mistakes in it."""

from decimal import Decimal
from pathlib import Path

import pytest
from support.config_folder import AGENTS, Folder

from pallas.prices.price_book import PriceRule


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def prices(lines: str) -> str:
    return AGENTS + "prices:\n" + "".join(f"  {line}\n" for line in lines.splitlines())


def test_prices_are_rules_in_order(folder: Folder) -> None:
    text = (
        "openai.mine: {input: 3.0, output: 15, cached: 0.3, cache_write: 3.75}\n"
        "generic.*: {input: 0, output: 0}\n"
        "'*-gateway': {like: openai.gpt-4o}"
    )
    assert folder.agents(prices(text)).load().prices == (
        PriceRule("openai.mine", Decimal("3.0"), Decimal("15.0"), Decimal("0.3"), Decimal("3.75")),
        PriceRule("generic.*", Decimal("0.0"), Decimal("0.0")),
        PriceRule("*-gateway", like="openai.gpt-4o"),
    )


@pytest.mark.parametrize(
    ("line", "key", "problem"),
    [
        ("m: {output: 1}", "prices.m.input", "is missing"),
        ("m: {input: 1}", "prices.m.output", "is missing"),
        ("m: {input: -1, output: 1}", "prices.m.input", "allowed"),
        ("m: {input: x, output: 1}", "prices.m.input", "number"),
        ("m: {input: .nan, output: 1}", "prices.m.input", ""),
        ("m: {like: gpt-4o}", "prices.m.like", "PROVIDER.MODEL"),
        ("m: {like: openai.gpt-4o, input: 1}", "prices.m.input", "is given beside like"),
        ("m: {input: 1, output: 1, ouptut: 1}", "prices.m.ouptut", "output"),
        ("m: 3", "prices.m", "mapping"),
    ],
)
def test_mistakes_say_where_they_are(folder: Folder, line: str, key: str, problem: str) -> None:
    found = folder.agents(prices(line)).found()
    assert [(each.key, problem in str(each)) for each in found] == [(key, True)], found
    assert found[0].where.line == len(prices(line).splitlines())
