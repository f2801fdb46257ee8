"""Regular expressions that are compiled when they are first used."""

import re
from typing import Any, Final, cast

_METHODS: Final = ("finditer", "findall", "fullmatch", "match", "search", "split", "sub", "subn")


def late_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return what ``re.compile`` does; the work is done at its first use.

    For long patterns of modules that every start imports.
    """
    return cast("re.Pattern[str]", _LatePattern(pattern, flags))


class _LatePattern:
    def __init__(self, pattern: str, flags: int) -> None:
        self._pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Compile it; its methods are found without this from then on."""
        compiled = re.compile(self._pattern, self._flags)
        vars(self).update({each: getattr(compiled, each) for each in _METHODS})
        return getattr(compiled, name)
