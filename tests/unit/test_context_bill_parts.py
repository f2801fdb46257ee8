"""The parts of a context bill: sums, texts, the formulas of pictures, and what requests teach."""

import json

import pytest

from pallas.fleet.reload.reload_report import report_line
from pallas.model import ContextBill, ContextChange, ContextPart, Reloaded
from pallas.model.context_bill import bill_of, changes_text, context_changes
from pallas.model.image_tokens import image_tokens
from pallas.model.token_estimate import IMAGE_TOKENS
from pallas.telemetry.context_meter import size_of
from pallas.telemetry.part_size import PartSize
from pallas.telemetry.request_parts import PartCache
from pallas.telemetry.token_ratios import DEFAULT_RATIO, SAMPLES, TokenRatios
from pallas_tui.supervision.reload_words import sentence
from pallas_tui.supervision.version_diff import plain

CHANGES = (ContextChange("tools", 3_100, "shop"), ContextChange("instruction", -40))


def test_the_parts_of_a_bill_are_whole_numbers_that_sum_up_to_the_total() -> None:
    bill = bill_of(
        [("instruction", "", 10.4), ("tools", "shop", 30.4), ("tools", "shop", 30.0), ("other", "", 0.2)],
        total=72,
        window=1_000,
    )
    assert bill.parts == (ContextPart("instruction", 10), ContextPart("tools", 62, "shop"))
    assert bill.heading == "72 of 1,000 tokens (7.2 %), last request"
    assert [part.label for part in bill.parts] == ["instruction", "tools of shop"]
    assert ContextBill(0, ()).heading == "0 tokens, last request"


def test_a_difference_names_each_part_that_is_more_or_less_or_gone() -> None:
    before = bill_of([("instruction", "", 50), ("tools", "old", 5), ("history", "", 3)])
    after = bill_of([("instruction", "", 10), ("tools", "shop", 3_100), ("history", "", 3)])
    assert context_changes(before, after) == (*CHANGES, ContextChange("tools", -5, "old"))
    assert changes_text(CHANGES) == "tools of shop: +3,100 tokens, instruction: -40 tokens"
    assert changes_text(CHANGES, 1) == "tools of shop: +3,100 tokens, and 1 more"


def test_the_note_of_a_reload_says_what_it_adds() -> None:
    event = Reloaded(agent="clerk", outcome="live", version=4, seconds=0.3, context=CHANGES)
    words = "tools of shop: +3,100 tokens, instruction: -40 tokens"
    assert report_line(event) == f"clerk: version 4 is live after 0.30 s; {words}"
    assert sentence(event) == f"clerk v4 live in 0.3 s; {words}"
    assert "tools of shop: +3,100 tokens\ninstruction: -40 tokens" in plain(event)


@pytest.mark.parametrize(
    ("provider", "model", "size", "tokens"),
    [
        ("anthropic", "claude-haiku-4-5", (200, 200), 54),
        ("anthropic", "claude-haiku-4-5", (1_000, 1_000), 1_334),
        ("anthropic", "claude-haiku-4-5", (4_000, 3_000), 1_600),
        ("openai", "gpt-4.1", (1_024, 1_024), 765),
        ("openai", "gpt-4o", (2_048, 4_096), 1_105),
        ("responses", "gpt-5-mini", (1_024, 1_024), 1_659),
        ("openai", "gpt-4.1-mini", (1_800, 2_400), 2_353),
        ("google", "gemini-2.5-flash", (300, 384), 258),
        ("google", "gemini-2.5-flash", (960, 540), 258 * 6),
        ("generic", "qwen3", (960, 540), IMAGE_TOKENS),
        ("openai", "gpt-4o", (0, 0), IMAGE_TOKENS),
        ("openai", "gpt-4o", (100_000, 1), 85 + 4 * 170),
        ("openai", "gpt-4o", (1, 100_000), 85 + 4 * 170),
    ],
)
def test_a_picture_takes_what_its_provider_publishes(
    provider: str, model: str, size: tuple[int, int], tokens: int
) -> None:
    assert image_tokens(provider, model, *size) == tokens


def test_prose_and_structure_get_ratios_of_their_own_once_requests_tell_them_apart() -> None:
    ratios = TokenRatios()
    assert ratios.of("generic", "m") == ratios.ratio("m") == DEFAULT_RATIO
    ratios.learn("generic", "m", PartSize(1_000, 3_000), 1_700)  # 0.2 and 0.5 a byte
    one = ratios.ratio("m")
    assert one.tokens(PartSize(1_000, 3_000)) == pytest.approx(1_700, rel=0.01)
    assert one.prose == pytest.approx(one.structure, rel=0.3)
    ratios.learn("generic", "m", PartSize(8_000, 200), 1_700)
    found = ratios.ratio("m")
    assert found.prose == pytest.approx(0.2, rel=0.05)
    assert found.structure == pytest.approx(0.5, rel=0.05)
    assert ratios.of("other", "m") == DEFAULT_RATIO
    for _ in range(SAMPLES):  # the model was exchanged: what was learned before is forgotten
        ratios.learn("generic", "m", PartSize(1_000, 0), 1_000)
    assert ratios.ratio("m").prose == pytest.approx(1.0, rel=0.01)


def test_a_long_message_counts_whole_although_the_record_cuts_it() -> None:
    cache = PartCache()
    words = "word " * 20_000
    body = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": words}]}
    size = size_of(cache.split(json.dumps(body).encode(), "t"))
    assert len(words) <= size.history.prose < len(words) * 1.01
    body["messages"] += [{"role": "assistant", "content": "yes"}, {"role": "user", "content": "no"}]
    longer = size_of(cache.split(json.dumps(body).encode(), "t"))
    assert 0 < longer.history.prose - size.history.prose < 60
    assert longer.instruction == size.instruction
