"""An empty Textual app that shows a model's answer with Textual's own Markdown stream.

``python -m benchmarks.markdown_screen URL``: a line of input, whose text is the question; enter asks.
"""

import asyncio
import json
import sys
from urllib.parse import urlsplit

from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Input, Markdown


class MarkdownScreen(App[None]):
    """One answer after the other below each other."""

    def __init__(self, url: str) -> None:
        super().__init__()
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port

    def compose(self) -> ComposeResult:
        yield VerticalScroll()
        yield Input(placeholder="Write to the model")

    def on_mount(self) -> None:
        """Begin where one writes."""
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Ask."""
        event.input.clear()
        self.run_worker(self._ask(event.value))

    async def _ask(self, question: str) -> None:
        shown = Markdown()
        box = self.query_one(VerticalScroll)
        await box.mount(shown)
        box.anchor()
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=2**24)
        body = json.dumps({"messages": [{"role": "user", "content": question}]}).encode()
        writer.write(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        stream = Markdown.get_stream(shown)
        while line := await reader.readline():
            if line.startswith(b"data: {"):
                choice = json.loads(line[6:])["choices"][0]
                if text := choice["delta"].get("content"):
                    await stream.write(text)
            elif line.startswith(b"data: [DONE]"):
                break
        await stream.stop()
        writer.close()


if __name__ == "__main__":
    MarkdownScreen(sys.argv[1]).run()
