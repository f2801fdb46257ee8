"""A message of several lines, as it is typed: a backslash at the end of one, or three quotes around all."""

from typing import Final

QUOTES: Final = '"""'


def goes_on(text: str) -> bool:
    """Whether the next line belongs to it as well."""
    body = text.lstrip()
    if body.startswith(QUOTES):
        return QUOTES not in body[len(QUOTES) :]
    last = text.rpartition("\n")[2]
    # An even number of them are backslashes meant as such.
    return (len(last) - len(last.rstrip("\\"))) % 2 == 1


def typed(text: str) -> str:
    """The message, without what only says that it goes on."""
    body = text.strip()
    if body.startswith(QUOTES):
        inner, _, rest = body[len(QUOTES) :].partition(QUOTES)
        return (inner + rest).strip("\n")
    return text.replace("\\\n", "\n")
