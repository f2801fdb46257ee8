"""Prose and JSON on the screen: lines break between words."""

import json

import pytest
from support.pane_app import PaneApp
from support.waiting import until

from pallas.model import Exchange
from pallas_tui.runs.exchange_text import CallExchange
from pallas_tui.widgets.feed.run_pane import ExchangePane
from pallas_tui.widgets.pane import Pane
from pallas_tui.widgets.text_lines import TextLines

PROSE = (
    "The invoices of May were sent twice because a worker was restarted while it held the lock of the "
    "table, and the reminder went to three customers who had paid already – naïvely enough."
)


class LongText(Pane):
    """A text to read."""

    TITLE = "Text"

    def compose(self):  # type: ignore[no-untyped-def]
        """All of it."""
        yield TextLines(id="text")

    def on_mount(self) -> None:
        """Show it."""
        self.query_one(TextLines).put([(PROSE, "")])


@pytest.mark.slow
@pytest.mark.parametrize("size", [(60, 30), (43, 30)])
async def test_words_are_whole_in_texts_and_in_the_json_of_an_exchange(size: tuple[int, int]) -> None:
    body = json.dumps({"message": PROSE, "data": "A" * 150})
    exchange = Exchange("r", 0.0, "outbound", "docs", "tools/call", request=body)
    for pane in (LongText(id="long"), ExchangePane(CallExchange(exchange, None))):
        app = PaneApp(pane)
        async with app.run_test(size=size) as pilot:
            await until(lambda app=app: "enough." in app.screen_text(), pilot)
            shown = {word.strip('",') for word in app.screen_text().split()}
            assert {word.strip(",") for word in PROSE.split()} <= shown
