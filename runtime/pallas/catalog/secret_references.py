"""``${secret:NAME/KEY}`` in a text: replaced by the secret's value when the text is used, and never shown."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_REFERENCE: Final = re.compile(r"\$\{secret:([a-z0-9][a-z0-9._-]*)/([A-Za-z_][A-Za-z0-9_.-]*)\}")
_ATTEMPT: Final = re.compile(r"\$\{")


@dataclass(frozen=True, slots=True)
class SecretRef:
    """One value of a secret, by the names of secret and key."""

    name: str
    key: str

    def __str__(self) -> str:
        return f"{self.name}/{self.key}"


def references_in(text: str) -> tuple[SecretRef, ...]:
    """All references in ``text``, with repetitions. Raises ValueError for a malformed one."""
    found = tuple(SecretRef(*match.groups()) for match in _REFERENCE.finditer(text))
    if len(_ATTEMPT.findall(text)) != len(found):
        raise ValueError("holds ${ that is not a reference; write ${secret:NAME/KEY}")
    return found


def filled(text: str, value: Callable[[SecretRef], str]) -> str:
    """``text`` with each reference replaced by ``value`` of it."""
    return _REFERENCE.sub(lambda match: value(SecretRef(*match.groups())), text)
