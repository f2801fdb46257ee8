"""The blocks of code in a message, to be copied one by one."""

from dataclasses import dataclass

from markdown_it import MarkdownIt

from pallas.safe_text import one_line


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """One block; ``language`` is empty where none is named."""

    language: str
    code: str


def code_blocks(text: str) -> tuple[CodeBlock, ...]:
    """The fenced and indented blocks of Markdown ``text``, in order. Takes time: call in a thread."""
    tokens = MarkdownIt("commonmark", {"html": False}).parse(text)
    return tuple(
        CodeBlock(one_line(token.info, 30).split(" ")[0], token.content.removesuffix("\n"))
        for token in tokens
        if token.type in ("fence", "code_block") and token.content.strip()
    )


class BlockWalk:
    """Which block is copied next: each block of a message in turn, then the first again."""

    def __init__(self) -> None:
        self._message: object = None
        self._at = -1

    def next(self, message: object, count: int) -> int:
        """Return the index of the next one of ``count``, which is not 0, in ``message``."""
        self._at = (self._at + 1) % count if message == self._message else 0
        self._message = message
        return self._at
