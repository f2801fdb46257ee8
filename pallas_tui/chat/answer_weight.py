"""How much the Markdown of an answer costs when it is drawn: known before it is parsed."""

import re
from typing import Final

PLAIN_ABOVE: Final = 60_000
"""Characters above which an answer is shown as its source."""
WEIGHT: Final = 400
"""About how many widgets the Markdown of one answer may become: more would block the keys."""

FENCE: Final = re.compile(r"\s*(```|~~~)")
_MARKER: Final = re.compile(r"[ \t]*(?:>|(?:[-*+]|\d{1,9}[.)])(?=[ \t]|$))")
_ITEM_WEIGHT: Final = 4
_QUOTE_WEIGHT: Final = 3
_CODE_WEIGHT: Final = 4
_INDENT: Final = 4
# A parser of Markdown drops what is nested deeper, and each level takes two columns.
_DEEPEST: Final = 8


def weight(text: str) -> int:
    """Return about how many widgets the Markdown in ``text`` becomes; counts until they are too many.

    What is nested too deep to be drawn is too heavy as well.
    """
    widgets, fence, quoted, was_blank = 0, "", 0, True
    for line in text.splitlines():
        if widgets > WEIGHT:
            break
        if found := FENCE.match(line):
            widgets += 0 if fence else _CODE_WEIGHT
            fence = "" if fence == found[1] else fence or found[1]
            continue
        if fence:
            continue
        if not line.strip():
            quoted, was_blank = 0, True
            continue
        line = line.expandtabs(4)
        quotes, items, rest = _nesting(line)
        indent = len(line) - len(line.lstrip())
        if quotes + items + indent // _INDENT * bool(items) > _DEEPEST:
            return WEIGHT + 1
        widgets += max(0, quotes - quoted) * _QUOTE_WEIGHT + items * _ITEM_WEIGHT
        if was_blank and not items and indent >= _INDENT:
            widgets += _CODE_WEIGHT
        elif not items:
            widgets += max(1, line.count("|", rest) - 1)
        quoted, was_blank = quotes, False
    return widgets


def is_light(text: str) -> bool:
    """Return whether ``text`` is light enough to be drawn as Markdown while the user types."""
    return len(text) <= PLAIN_ABOVE and weight(text) <= WEIGHT


def widgets_of(text: str) -> int:
    """Return about how many widgets a message with this text is on the screen."""
    return weight(text) + 1 if is_light(text) else 2


def _nesting(line: str) -> tuple[int, int, int]:
    """Count the quotes and the items that a line begins, at most a few more than can be drawn."""
    quotes = items = at = 0
    while quotes + items <= _DEEPEST and (found := _MARKER.match(line, at)):
        is_quote = found[0].endswith(">")
        quotes, items, at = quotes + is_quote, items + (not is_quote), found.end()
    return quotes, items, at
