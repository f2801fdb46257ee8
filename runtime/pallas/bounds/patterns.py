"""Regular expressions of servers, searched within limits of time and memory."""

from typing import Final

import regex

SECONDS: Final = 0.02
MAX_PATTERN: Final = 1_000
MAX_SIZE: Final = 20_000
"""Places that a pattern may come to once its counted repeats are written out, as the compiler does."""


class Unusable(ValueError):
    """A pattern that is not searched for: too large, too slow, or no pattern."""


def matches(pattern: object, text: str, seconds: float = SECONDS) -> bool:
    """Whether ``pattern`` is found anywhere in ``text``. Raises Unusable; takes at most ``seconds``."""
    if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN or size(pattern) > MAX_SIZE:
        raise Unusable
    try:
        return regex.search(pattern, text, timeout=seconds) is not None
    except (regex.error, TimeoutError, OverflowError, RecursionError) as error:
        raise Unusable from error


def size(pattern: str) -> int:
    """About how many places a pattern has when its repeats are written out; never too few."""
    groups: list[int] = [0]
    last = 0
    index = 0
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            index += 1
            last = 1
        elif char == "[":
            end = pattern.find("]", index + 2)
            index, last = (len(pattern) if end < 0 else end), 1
        elif char == "(":
            groups.append(0)
            last = 0
        elif char == ")" and len(groups) > 1:
            last = groups.pop()
        elif char == "{" and (end := pattern.find("}", index)) > 0:
            counts = [
                int(part) for part in pattern[index + 1 : end].split(",") if part.isascii() and part.isdigit()
            ]
            if counts:
                groups[-1] += last * max(0, max(counts) - 1)
                last *= max(1, max(counts))
                index = end + 1
                continue
            last = 1
        else:
            last = 1
        groups[-1] += last
        index += 1
    return sum(groups)
