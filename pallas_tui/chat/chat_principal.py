"""The principal of a conversation: anonymous, or the owner of a bearer token."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pallas.model import Fault, FaultType
from pallas.model.fingerprint import fingerprint
from pallas.model.redaction import forget, redact
from pallas.safe_text import one_line

MAX_TOKEN: Final = 16_384
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=:|,;!@#%&*()\[\]{}<>?^$'`-]+\Z")
_SHOWN: Final = 8
_COLUMN: Final = 24
_NO_TOKEN: Final = "holds no token now"


@dataclass(frozen=True, slots=True)
class ChatPrincipal:
    """``token`` is in memory only and never shown; ``source`` is ``$NAME`` or ``typed``, empty without one.

    The log masks the token until ``release``.
    """

    source: str = ""
    token: str = field(default="", repr=False)

    @property
    def label(self) -> str:
        """``nobody``, or the source of the token with the beginning of its fingerprint."""
        if not self.token:
            return "nobody"
        return f"{self.source} {fingerprint(self.token)[:_SHOWN]}"

    @property
    def fingerprint(self) -> str:
        """The salted fingerprint, as in the feed and the credentials; empty without a token."""
        return fingerprint(self.token) if self.token else ""

    def lend(self) -> "ChatPrincipal":
        """Return a copy for another conversation, which releases it on its own."""
        if self.token:
            redact(self.token)
        return self

    def release(self) -> None:
        """Stop masking the token: it is no longer used."""
        if self.token:
            forget(self.token)


NOBODY: Final = ChatPrincipal()


def from_environment(name: str, environ: Mapping[str, str] | None = None) -> ChatPrincipal:
    """Return the token in the variable ``name``, with or without ``$``. Raises Fault (CONFIG)."""
    name = name.strip().removeprefix("$").removeprefix("{").removesuffix("}")
    if not _NAME.match(name):
        raise _wrong("That is not the name of an environment variable. Write $NAME, never the token itself.")
    value = (os.environ if environ is None else environ).get(name)
    if value is None:
        raise _wrong(
            f"There is no variable {one_line(name, 60)} in the environment that the workbench was "
            "started in. Set it and start again, or type the token in (/set bearer ask)."
        )
    return _principal(f"${name}", value)


def typed(token: str) -> ChatPrincipal:
    """Return the token that the user typed into a masked line. Raises Fault (CONFIG)."""
    return _principal("typed", token)


def names_of(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the names of variables that look like tokens; never their values."""
    wanted = re.compile(r"TOKEN|BEARER|JWT|SECRET|API_?KEY|ACCESS", re.IGNORECASE)
    names = os.environ if environ is None else environ
    return tuple(sorted(f"${name}" for name in names if _NAME.match(name) and wanted.search(name)))[:50]


def choices(saved: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return who can be asked as: the value for ``/set bearer``, and a line with the token's fingerprint.

    ``saved`` maps names that the user gave to variables. Variables without a token are left out.
    """
    listed = [("none", f"{'nobody':<{_COLUMN}}  no bearer is sent")]
    for name, variable in saved.items():
        listed.append((name, f"{one_line(name, 60):<{_COLUMN}}  {variable} {_described(variable)}"))
    for variable in names_of():
        about = _described(variable)
        if variable not in saved.values() and about != _NO_TOKEN:
            listed.append((variable, f"{variable:<{_COLUMN}}  {about}"))
    return [*listed, ("ask", f"{'another':<{_COLUMN}}  type a token in, masked")]


def _described(variable: str) -> str:
    try:
        principal = from_environment(variable)
    except Fault:
        return _NO_TOKEN
    principal.release()
    return f"fingerprint {principal.fingerprint[:_SHOWN]}"


def _principal(source: str, value: str) -> ChatPrincipal:
    token = value.strip()
    if token[:7].lower() == "bearer ":
        token = token[7:].strip()
    if not token:
        raise _wrong(
            f"The token {'in ' + source if source.startswith('$') else ''} is empty.".replace("  ", " ")
        )
    if len(token) > MAX_TOKEN:
        raise _wrong(f"A token has at most {MAX_TOKEN} characters; this one has {len(token)}.")
    if not _TOKEN.match(token):
        raise _wrong("A token has letters, digits and signs in one piece: no spaces, quotes or line breaks.")
    redact(token)
    return ChatPrincipal(source, token)


def _wrong(problem: str) -> Fault:
    return Fault(FaultType.CONFIG, problem)
