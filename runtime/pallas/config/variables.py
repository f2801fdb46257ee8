"""``${VAR}`` and ``${VAR:default}``, as fast-agent writes them."""

import re
from collections.abc import Mapping
from typing import Final

_REFERENCE: Final = re.compile(r"\$\{([^}]+)\}")


def expand(text: str, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """``text`` with its references replaced, and the names that are not set and have no default.

    Those become an empty string: the literal ``${VAR}`` is never sent anywhere (PR-10).
    """
    unset: dict[str, None] = {}

    def value(match: re.Match[str]) -> str:
        name, colon, default = match[1].partition(":")
        if name in environ:
            return environ[name]
        if not colon:
            unset.setdefault(name)
        return default

    return _REFERENCE.sub(value, text), tuple(unset)


def refers(text: str) -> bool:
    """Whether ``text`` holds a reference."""
    return _REFERENCE.search(text) is not None


def shell_style_defaults(text: str) -> tuple[str, ...]:
    """Names written ``${VAR:-default}``: the dash is the shell's habit and becomes part of the default."""
    return tuple(
        name
        for name, colon, default in (match[1].partition(":") for match in _REFERENCE.finditer(text))
        if colon and default.startswith("-")
    )
