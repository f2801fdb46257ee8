"""`pallas token`: make tokens for callers of agents; a project stores only their hashes."""

import getpass
import re
import sys
from datetime import UTC, date, datetime, timedelta
from typing import Final

from pallas.surfaces.auth.static_tokens import MAX_TOKEN, make_token, sha256_of

# A token that a person made up must be long: others may see its hash and try words.
MIN_LENGTH: Final = 24
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,100}")
_SPAN: Final = re.compile(r"([1-9][0-9]{0,4})([dwmy])")
_DAYS: Final = {"d": 1, "w": 7, "m": 30, "y": 365}


def new(name: str, scopes: str = "", expires: str = "") -> int:
    """Print a token once on stdout, and on stderr the lines that register it; returns the exit status.

    ``scopes`` are words separated by commas, ``expires`` is a day or a span such as ``90d``. The status is 2
    when something is wrong with these.
    """
    words = [word for word in re.split(r"[,\s]+", scopes) if word]
    try:
        last = _last_day(expires) if expires else None
    except ValueError:
        return _wrong(
            f"--expires {expires[:40]}: write a day such as 2027-01-31, or a span: 90d, 12w, 6m, 1y"
        )
    if not _NAME.fullmatch(name):
        return _wrong(
            f"{name[:80]}: a name begins with a-z or 0-9; then . _ - are allowed too, 64 characters at most"
        )
    if bad := next((word for word in words if not _SCOPE.fullmatch(word)), None):
        return _wrong(f"--scopes: {bad[:40]!r} is not a scope: use visible ASCII, no quotes and backslashes")
    if last is not None and last < datetime.now(UTC).date():
        return _wrong(f"--expires {expires}: that is in the past")
    token = make_token()
    _say(
        "# The token is shown this once: only its hash is kept. Give it to the caller, who sends it as",
        "#   Authorization: Bearer TOKEN",
        "# and put these lines into agents.yaml:",
        *_lines(name, token, words, last),
    )
    print(token, flush=True)
    return 0


def hash_token() -> int:
    """Read a token from stdin, without an echo on a terminal, and print its hash; returns the exit status."""
    try:
        token = (getpass.getpass("token: ") if sys.stdin.isatty() else sys.stdin.read(MAX_TOKEN + 2)).strip()
    except (EOFError, KeyboardInterrupt, UnicodeDecodeError):
        return _wrong("no token was read")
    if not token:
        return _wrong("no token was read; write it to stdin")
    if not token.isascii() or not token.isprintable() or " " in token:
        return _wrong("a token has ASCII letters, digits and symbols, and no blanks")
    if not MIN_LENGTH <= len(token) <= MAX_TOKEN:
        return _wrong(
            f"a token has {MIN_LENGTH} to {MAX_TOKEN} characters, and this one {len(token)}; "
            "`pallas token new NAME` makes one that cannot be guessed"
        )
    print(sha256_of(token), flush=True)
    return 0


def _lines(name: str, token: str, scopes: list[str], last: date | None) -> list[str]:
    parts = [f"sha256: {sha256_of(token)}"]
    if scopes:
        parts.append("scopes: [" + ", ".join(_quoted(word) for word in scopes) + "]")
    if last is not None:
        parts.append(f"expires: {last.isoformat()}")
    return ["auth:", "  tokens:", f"    {_quoted(name)}: {{{', '.join(parts)}}}"]


def _quoted(word: str) -> str:
    """Quote a word so that YAML reads it as text, also inside a list."""
    plain = re.fullmatch(r"[a-z][a-z0-9_.:/-]*[a-z0-9]|[a-z]", word)
    odd = word in {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
    return word if plain and not odd else "'" + word.replace("'", "''") + "'"


def _last_day(text: str) -> date:
    """Return the last day on which a token is valid. Raises ValueError."""
    if span := _SPAN.fullmatch(text):
        days = int(span[1]) * _DAYS[span[2]]
        if days > 36_500:
            raise ValueError(text)
        return (datetime.now(UTC) + timedelta(days=days)).date()
    return date.fromisoformat(text)


def _say(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr)


def _wrong(text: str) -> int:
    _say(text)
    return 2
