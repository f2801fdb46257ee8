"""Masks secrets in text: known values by value, others by their shape. No token or key reaches a log."""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, quote_plus

MASK: Final = "[redacted]"
MIN_LENGTH: Final = 6
MAX_SECRETS: Final = 4_096

_NAME: Final = (
    r"(?:api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|secret|passw(?:or)?d|passphrase"
    r"|credential|token|authorization|cookie)s?"
)
# Every name that the pattern above matches contains one of these.
_IN_NAMES: Final = ("key", "secret", "passw", "passphrase", "credential", "token", "authorization", "cookie")
_SENSITIVE: Final = re.compile(_NAME + r"\Z", re.IGNORECASE)
# The rest of a `${secret:` reference, which names a secret and holds none.
_REFERRED: Final = re.compile(r"[\w.-]{1,200}/[\w.-]{1,200}\}[\"').,;]{0,4}")

# Words that follow "bearer" or "token:" in a sentence and are no credential.
# fmt: off
_PROSE: Final = frozenset({
    "accepted", "auth", "authentication", "authorization", "cannot", "credential", "credentials", "empty",
    "error", "expired", "false", "forwarded", "forwarding", "header", "headers", "invalid", "is", "malformed",
    "missing", "must", "none", "not", "null", "passthrough", "realm", "refused", "rejected", "required",
    "scheme", "scope", "string", "token", "tokens", "true", "unknown", "unset",
})
# fmt: on
_VALUELESS: Final = frozenset({"none", "null", "true", "false"})

# Bounds keep every pattern linear: a log line must not become a way to stop the loop.
_QUOTED_VALUE: Final = r'"(?:[^"\\]|\\.){0,8192}"' + r"|'(?:[^'\\]|\\.){0,8192}'"
_ESCAPED_VALUE: Final = r"""\\+["'].{0,8192}?\\+["']"""
_FIELD: Final = re.compile(
    rf"""(?P<name>{_NAME})(?P<sep>\\*["']\s*[:=,]\s*(?:b(?=["']))?)"""
    rf"""(?P<value>{_ESCAPED_VALUE}|{_QUOTED_VALUE}|[^\s,\]\[{{}}()]+)""",
    re.IGNORECASE | re.DOTALL,
)
_PAIR: Final = re.compile(
    rf"""(?P<name>{_NAME})(?P<sep>\s?[:=]\s*(?:b(?=["']))?)"""
    rf"(?P<value>{_ESCAPED_VALUE}|{_QUOTED_VALUE}|[^\s&]+)",
    re.IGNORECASE | re.DOTALL,
)
_HEADER_LINE: Final = re.compile(
    r"(?P<head>(?:authorization|cookie)\s?[:=]\s*)"
    r"(?P<value>(?:bearer|basic|token|apikey|negotiate)\s+[^\s\"']+|[^\r\n\"'\\]+)",
    re.IGNORECASE,
)
_BEARER: Final = re.compile(r"(?P<head>\bbearer(?:\s+|%20|\+))(?P<value>[\w.~+/=-]{6,})", re.IGNORECASE)
_BASIC: Final = re.compile(r"(?P<head>\bbasic\s+)(?P<value>[A-Za-z0-9+/]{8,}={0,2})", re.IGNORECASE)
# A whole session id gives access to the session: only enough is left to tell two apart.
_SESSION: Final = re.compile(
    r"(?P<head>\bsession(?:[ _-]?id)?\W{1,4}[0-9a-f]{8})[0-9a-f]{24}\b", re.IGNORECASE
)
_HANDLE: Final = re.compile(r"(?P<head>\bconv-[\w-]{3})[\w-]{21}(?![\w-])")
_USERINFO: Final = re.compile(r"://[^/\s?#\"'<>\\]{1,512}@")
_SHAPES: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-[\w-]{8,}|[rsp]k_(?:live|test)_\w{8,}|gh[opsur]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[abeoprs]-[\w-]{8,}|hf_\w{16,}|gsk_\w{16,}|xai-[\w-]{16,}|AIza[\w-]{30,}|(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|eyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*"
    r")"
    r"|-----BEGIN [A-Z ]{0,24}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,24}PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
# What the pattern above matches contains such a character, which is found fastest, and such a word.
# fmt: off
_IN_SHAPES: Final = (
    ("-", ("sk-", "glpat-", "xox", "xai-", "-----BEGIN ")),
    ("_", ("k_live_", "k_test_", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_", "hf_", "gsk_")),
    ("A", ("AIza", "AKIA", "ASIA")),
    ("J", ("eyJ",)),
)
# fmt: on


class _Known:
    """Known values with a count, so that two runs with one token can each forget it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[str, int] = {}
        self._forms: dict[str, set[str]] = {}
        self.spellings: tuple[str, ...] = ()
        self.longest = 0

    def add(self, values: tuple[str, ...]) -> None:
        with self._lock:
            for value in values:
                if len(value) >= MIN_LENGTH and value not in MASK:
                    self._counts[value] = self._counts.pop(value, 0) + 1
            while len(self._counts) > MAX_SECRETS:
                del self._counts[next(iter(self._counts))]
            self._publish()

    def drop(self, values: tuple[str, ...]) -> None:
        with self._lock:
            for value in values:
                if value in self._counts:
                    self._counts[value] -= 1
                    if not self._counts[value]:
                        del self._counts[value]
            self._publish()

    def _publish(self) -> None:
        # Callers' tokens come and go with their runs: compute spellings of new values only.
        self._forms = {value: self._forms.get(value) or _spellings(value) for value in self._counts}
        # Longest first: a secret that contains another must not leave its tail behind.
        found = set[str]().union(*self._forms.values())
        self.spellings = tuple(sorted(found, key=len, reverse=True))
        self.longest = len(self.spellings[0]) if self.spellings else 0


def _spellings(value: str) -> set[str]:
    """The value as it appears in text, in JSON, in a ``repr`` and in a URL."""
    return {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        quote(value, safe=""),
        quote_plus(value),
    }


_known = _Known()
# Names of tokens in files. They are not secret: `token:ci` names a caller.
_names: set[str] = set()


def name_tokens(names: Iterable[str]) -> None:
    """Do not mask ``token:NAME`` for these names, which identify callers and are not tokens."""
    _names.update(name.lower() for name in names)


def redact(*secrets: str) -> None:
    """Mask these exact values in every log record from now on (SPEC PR-36).

    Values shorter than 6 characters are ignored, since masking them would hide ordinary words. At most 4,096
    are kept; the oldest are dropped. Call ``forget`` once for each ``redact`` of a temporary value.
    """
    _known.add(secrets)


def forget(*secrets: str) -> None:
    """Undo one ``redact`` of each value."""
    _known.drop(secrets)


def is_sensitive(name: str) -> bool:
    """Whether a field of that name, such as ``x-api-key``, holds a secret."""
    return bool(_SENSITIVE.search(name))


def longest_secret() -> int:
    """The length of the longest known value, for callers that cut text before it is masked."""
    return _known.longest


def known_spellings() -> tuple[str, ...]:
    """The values that are masked now, for text that is masked later: see ``redact_text``."""
    return _known.spellings


def redact_text(text: str, known: tuple[str, ...] = ()) -> str:
    """``text`` with every secret replaced by ``[redacted]``. Idempotent; errs on the side of masking.

    ``known`` are the ``known_spellings`` of the time when the text arrived. They are masked too.
    """
    spellings = _known.spellings
    if known and known is not spellings:
        spellings = tuple(sorted({*known, *spellings}, key=len, reverse=True))
    for spelling in spellings:
        if spelling in text:
            text = text.replace(spelling, MASK)
    # Searching for a word takes a hundredth of the time of its pattern, and most texts do not contain it.
    if any(one in text and any(word in text for word in words) for one, words in _IN_SHAPES):
        text = _SHAPES.sub(MASK, text)
    folded = _folded(text)
    if "session" in folded:
        text = _SESSION.sub(r"\g<head>…", text)
    if "conv-" in folded:
        text = _HANDLE.sub(r"\g<head>…", text)
    if "authorization" in folded or "cookie" in folded:
        text = _HEADER_LINE.sub(_mask_value, text)
    if "bearer" in folded:
        text = _BEARER.sub(_mask_unless_prose, text)
    if "basic" in folded:
        text = _BASIC.sub(_mask_credentials, text)
    if any(word in folded for word in _IN_NAMES):
        text = _FIELD.sub(_mask_field, text)
        text = _PAIR.sub(_mask_field, text)
    return _USERINFO.sub(f"://{MASK}@", text) if "://" in text else text


def redact_value(value: Any) -> Any:
    """A copy of a JSON value with every secret masked, also those that a field or header names."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {redact_text(str(name)): _of_name(str(name), each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        if len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], str):  # maybe a header
            return [redact_text(value[0]), _of_name(value[0], value[1])]
        return [redact_value(each) for each in value]
    is_secret = isinstance(value, int | float) and redact_text(str(value)) != str(value)
    return MASK if is_secret else value


def _of_name(name: str, value: Any) -> Any:
    """The value of a field. Numbers of tokens are counts, as in ``max_tokens``."""
    if not is_sensitive(name) or isinstance(value, Mapping):  # a schema may describe a field of such a name
        return redact_value(value)
    if isinstance(value, list | tuple):
        return [_of_name(name, each) for each in value]
    is_count = isinstance(value, int | float) and name.lower().endswith("tokens")
    return value if value in (None, "") or isinstance(value, bool) or is_count else MASK


def _folded(text: str) -> str:
    """``text`` in the case in which words are searched, as the patterns treat it."""
    if text.isascii():
        return text.lower()
    # Patterns treat both of these as an i.
    return text.replace("ı", "i").replace("İ", "i").casefold()


def _mask_value(match: re.Match[str]) -> str:
    value = match["value"].strip()
    return match[0] if value.lower() in _PROSE else match["head"] + MASK


def _mask_unless_prose(match: re.Match[str]) -> str:
    word = match["value"].partition("=")[0].rstrip(".").lower()
    return match[0] if word in _PROSE else match["head"] + MASK


def _mask_credentials(match: re.Match[str]) -> str:
    # "Basic authentication" is valid base64 too; credentials contain a colon.
    try:
        plain = base64.b64decode(match["value"], validate=True)
    except binascii.Error:
        return match[0]
    return match["head"] + MASK if b":" in plain else match[0]


def _mask_field(match: re.Match[str]) -> str:
    name, value = match["name"], match["value"]
    bare = value.strip("\\\"'").rstrip(",;.)]}>\\\"'")
    word = bare.lower()
    counted = name.lower() == "tokens" and bare.replace(",", "").isdigit()
    sentence = word in _PROSE and "=" not in match["sep"]
    named = match["sep"] == ":" and name == "token" and word in _names
    referred = match.string.startswith("${secret:", match.start() - 2) and bool(_REFERRED.fullmatch(value))
    if not bare or counted or sentence or named or referred or word in _VALUELESS or MASK in value:
        return match[0]
    start = value.find(bare)
    return f"{name}{match['sep']}{value[:start]}{MASK}{value[start + len(bare) :]}"
