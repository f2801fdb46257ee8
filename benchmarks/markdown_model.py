"""A model that answers in Markdown with headings, lists, tables and code (markdown_model PORT).

It speaks OpenAI's chat completions, streamed. The last message says what to answer: ``stream SECONDS`` is
100 pieces a second, ``whole CHARACTERS`` comes at once, ``blocks COUNT`` is so many blocks, at once.
``for NUMBER`` behind it makes the last line of the answer ``That was answer NUMBER.``
"""

import asyncio
import re
import sys
from contextlib import AbstractContextManager, suppress
from time import monotonic

from pallas.processes.event_loop import run

from .programs import own_server
from .streams import write_piece

RATE = 100
"""Pieces a second of an answer that is streamed."""
PIECE = 4
"""Characters of each."""
END = "That was answer {n}."
_WANTED = re.compile(r"(stream|whole|blocks) (\d+)(?: for (\d+))?")
_SECTION = """## Section {n}

A paragraph of some length that says what was found in the **May invoices**, with `code`, a
[link](https://example.invalid/{n}) and words enough to fill more than one row of the screen.

- first point of the list, with a few words
- second point, which is somewhat longer than the first one was
  - nested point

| customer | amount | state |
|:---|---:|:---:|
| Acme | 12.00 | open |
| Globex | 130.50 | paid |
| Initech | 7.25 | open |

```python
def total(rows):
    # sums the amounts
    result = 0
    for row in rows:
        result += row["amount"]  # of each row
    return f"{{result:.2f}}"
```

"""
_BLOCKS = (
    "line {n} with some words\n\n",
    "# head {n}\n\n",
    "```python\nx = {n}\n```\n\n",
    "| a | b |\n|---|---|\n| {n} | c |\n\n",
    "- item {n}\n\n",
)


def answer(what: str, size: int, number: str = "") -> str:
    """The Markdown of an answer."""
    end = END.format(n=number)
    if what == "blocks":
        return "".join(_BLOCKS[n % len(_BLOCKS)].format(n=n) for n in range(size)) + end
    wanted, sections = size * RATE * PIECE if what == "stream" else size, ""
    while len(sections) < wanted:
        sections += _SECTION.format(n=sections.count("## "))
    return sections + end


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while head := (await reader.readuntil(b"\r\n\r\n")).lower():
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            body = await reader.readexactly(length)
            if head.startswith(b"get"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                continue
            what, size, number = _WANTED.findall(body.decode())[-1]
            text = answer(what, int(size), number)
            step = PIECE if what == "stream" else len(text)
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            )
            began = monotonic()
            for number, at in enumerate(range(0, len(text), step)):
                await asyncio.sleep(max(0.0, began + number / RATE - monotonic()))
                write_piece(writer, {"content": text[at : at + step]}, None)
            write_piece(writer, {}, "stop")
            writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            await writer.drain()


def markdown_model() -> AbstractContextManager[str]:
    """The URL of the model in a process of its own, ended with the block."""
    return own_server("benchmarks.markdown_model")


async def _serve(port: int) -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    run(_serve(int(sys.argv[1])))
