"""An answer while it is written, which may be taken back and begin again."""

from textual.app import App, ComposeResult

from pallas_tui.widgets.chat.message_view import LiveText


class Live(App[None]):
    """One answer."""

    def compose(self) -> ComposeResult:
        yield LiveText()


def shown(app: App[None]) -> list[str]:
    """The lines on the screen that have text."""
    width, height = app.size
    lines = ("".join(segment.text for segment in line) for line in app.screen._compositor.render_strips())
    return [line.strip() for line in lines if line.strip()][: width * height]


async def test_text_in_place_of_another_leaves_nothing_of_it() -> None:
    app = Live()
    async with app.run_test(size=(60, 20)) as pilot:
        live = app.query_one(LiveText)
        for text in ("One.\n\nTw", "One.\n\nTwo.\n\nThr", "One.\n\nTwo.\n\nThree."):
            await live.show(text)
        await pilot.pause()
        assert shown(app) == ["One.", "Two.", "Three."]
        await live.show("One.\n\n[again]\n\nFo")
        await live.show("One.\n\n[again]\n\nFour.")
        await pilot.pause()
        assert shown(app) == ["One.", "[again]", "Four."]
        await live.show("")
        await pilot.pause()
        assert shown(app) == []
