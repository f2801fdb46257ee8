"""Masks secrets in text: known values by value, others by their shape. No token or key reaches a log.

A text is masked before it is cut and before it is stored. ``redact_head`` masks and cuts. Steps, events,
faults and logs are masked; the messages of threads are stored as they were said.
"""

import base64
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote_plus

from .late_pattern import late_pattern

MASK: Final = "[redacted]"
MIN_LENGTH: Final = 6
MAX_SECRETS: Final = 4_096
_OVERLAP: Final = 4 * 1024
"""Characters that are masked behind a cut: more than the longest credential of a known shape."""
_JSON_DEPTH: Final = 5
"""How often a known value may be in a JSON string within a JSON string."""
_MAX_SPELLING: Final = 16 * 1024
_LONG_WORD: Final = 16

_NAME: Final = (
    r"(?:api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|secret|passw(?:or)?d|passphrase"
    r"|credential|token|authorization|cookie)s?"
)
# Every name that the pattern above matches contains one of these.
_IN_NAMES: Final = ("key", "secret", "passw", "passphrase", "credential", "token", "authorization", "cookie")
_SENSITIVE: Final = late_pattern(_NAME + r"\Z", re.IGNORECASE)
# Variables and headers have more names: `STRIPE_KEY`, `X-Signature`. In JSON such a word may mean anything.
_LAST_WORD: Final = (
    r"_(?:(?<!PRIMARY_)(?<!FOREIGN_)(?<!PUBLIC_)(?<!UNIQUE_)(?<!INDEX_)(?<!SORT_)(?<!CACHE_)(?<!PARTITION_)"
    r"(?<!ROUTING_)(?<!SURROGATE_)(?<!IDEMPOTENCY_)KEY|AUTH|AUTHKEY|BEARER|CONN_?STR|CONNECTION_STRING|CREDS?"
    r"|DSN|HMAC|JWT|OTP|PASS|PASSCODE|PAT|PIN|PRIVKEY|PSK|PWD|SALT|SAS|SIG|SIGNATURE|WEBHOOK(?:_URL)?)"
)
# What may follow, as in `API_TOKEN_PROD` and `DB_PASS2`.
_QUALIFIERS: Final = (
    r"(?:_?(?:\d{1,4}|B64|BACKUP|BASE64|CURRENT|DEV(?:ELOPMENT)?|HEX|LIVE|MAIN|NEW|OLD|PREVIOUS|PRIMARY"
    r"|PROD(?:UCTION)?|SANDBOX|SECONDARY|STAG(?:E|ING)|TEST(?:ING)?|VALUE)){0,3}"
)
_VARIABLE_NAME: Final = late_pattern(r"[A-Z][A-Z0-9_]*|[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)+")
_SENSITIVE_VARIABLE: Final = late_pattern(
    rf"(?:(?i:{_NAME})|\A_(?:CREDS|DSN|JWT|PAT|SSHPASS)|(?<!\A){_LAST_WORD}){_QUALIFIERS}\Z"
)
# Names in the query of a URL that are no secret elsewhere.
_IN_QUERIES: Final = frozenset(
    {"auth", "code", "dsn", "jwt", "key", "pass", "pwd", "sas", "sig", "signature"}
)
_QUERY: Final = late_pattern(r"(?P<head>[?&;#](?P<name>[^=&;#?\s]{1,100})=)(?P<value>[^&;#\s]+)")
# The rest of a `${secret:` reference, which names a secret and holds none.
_REFERRED: Final = late_pattern(r"[\w.-]{1,200}/[\w.-]{1,200}\}[\"').,;]{0,4}")

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
_FIELD: Final = late_pattern(
    rf"""(?P<name>{_NAME})(?P<sep>\\*["']\s*[:=,]\s*(?:b(?=["']))?)"""
    rf"""(?P<value>{_ESCAPED_VALUE}|{_QUOTED_VALUE}|[^\s,\]\[{{}}()]+)""",
    re.IGNORECASE | re.DOTALL,
)
_PAIR: Final = late_pattern(
    rf"""(?P<name>{_NAME})(?P<sep>\s?[:=]\s*(?:b(?=["']))?)"""
    rf"(?P<value>{_ESCAPED_VALUE}|{_QUOTED_VALUE}|[^\s&]+)",
    re.IGNORECASE | re.DOTALL,
)
# `STRIPE_KEY=abc` and `"STRIPE_KEY": "abc"`; a colon without a quote is that of a sentence.
_VARIABLE: Final = late_pattern(
    rf"""(?P<name>{_LAST_WORD}{_QUALIFIERS})(?P<sep>(?P<shell>=)|\\*["']\s*[:=]\s*(?:b(?=["']))?)"""
    rf"""(?P<value>{_ESCAPED_VALUE}|{_QUOTED_VALUE}|(?(shell)[^\s&]+|[^\s,\]\[{{}}()]+))""",
    re.DOTALL,
)
_HEADER_LINE: Final = late_pattern(
    r"(?P<head>(?:authorization|cookie)\s?[:=]\s*)"
    r"(?P<value>(?:bearer|basic|token|apikey|negotiate)\s+[^\s\"']+|[^\r\n\"'\\]+)",
    re.IGNORECASE,
)
_BEARER: Final = late_pattern(r"(?P<head>\bbearer(?:\s+|%20|\+))(?P<value>[\w.~+/=-]{6,})", re.IGNORECASE)
_BASIC: Final = late_pattern(r"(?P<head>\bbasic\s+)(?P<value>[A-Za-z0-9+/]{8,}={0,2})", re.IGNORECASE)
# A whole session id gives access to the session: only enough is left to tell two apart.
_SESSION: Final = late_pattern(
    r"(?P<head>\bsession(?:[ _-]?id)?\W{1,4}[0-9a-f]{8})[0-9a-f]{24}\b", re.IGNORECASE
)
_HANDLE: Final = late_pattern(r"(?P<head>\bconv-[\w-]{3})[\w-]{21}(?![\w-])")
_HEX_OF_URL: Final = late_pattern("%[0-9A-F]{2}")
_USERINFO: Final = late_pattern(r"://[^/\s?#\"'<>\\]{1,512}@")
_SHAPES: Final = late_pattern(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-[\w-]{8,}|[rsp]k_(?:live|test)_\w{8,}|gh[opsur]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[abeoprs]-[\w-]{8,}|xapp-[\w-]{16,}|pypi-[\w-]{16,}|tvly-[\w-]{16,}|pplx-\w{16,}"
    r"|npm_\w{16,}|whsec_[\w+/=]{16,}|dop_v1_\w{16,}|shp(?:at|ca|pa|ss)_\w{16,}|lsv2_(?:pt|sk)_\w{16,}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}|ya29\.[\w-]{16,}|hf_\w{16,}|gsk_\w{16,}|xai-[\w-]{16,}|AIza[\w-]{30,}|(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|eyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*"
    r")"
    r"|-----BEGIN [A-Z ]{0,24}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,24}PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
# What the pattern above matches contains such a character, which is found fastest, and such a word.
# fmt: off
_IN_SHAPES: Final = (
    ("-", ("sk-", "glpat-", "xox", "xai-", "-----BEGIN ", "xapp-", "pypi-", "tvly-", "pplx-")),
    ("_", ("npm_", "whsec_", "dop_v1_", "shpat_", "shpca_", "shppa_", "shpss_", "lsv2_")),
    (".", ("SG.", "ya29.")),
    ("_", ("k_live_", "k_test_", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_", "hf_", "gsk_")),
    ("A", ("AIza", "AKIA", "ASIA")),
    ("J", ("eyJ",)),
)
# fmt: on
# Where a string ends, as JSON, as a Python text, or cut with a note of what is left out.
_END: Final = late_pattern(r"""\Z|\\*["']|\s*…|\s*\[\d+ more characters\]""")


@dataclass(frozen=True, slots=True)
class Spellings:
    """What is looked for in a text: long words without blanks only within such words."""

    anywhere: tuple[str, ...] = ()
    in_words: tuple[str, ...] = ()
    longest: int = 0

    def __or__(self, others: "Spellings") -> "Spellings":
        anywhere = set(others.anywhere).difference(self.anywhere)
        in_words = set(others.in_words).difference(self.in_words)
        longest = max(self.longest, others.longest)
        return Spellings((*self.anywhere, *anywhere), (*self.in_words, *in_words), longest)

    @property
    def all(self) -> tuple[str, ...]:
        """All of them."""
        return self.anywhere + self.in_words

    def found(self, text: str) -> list[str]:
        """Those that are in ``text``, longest first: a secret that contains another leaves no tail."""
        found = [each for each in self.anywhere if each in text]
        if self.in_words:
            words = " ".join([word for word in text.split() if len(word) >= _LONG_WORD])
            if words:
                found += [each for each in self.in_words if each in words]
        return sorted(found, key=len, reverse=True)


class _Known:
    """Known values with a count, so that two runs with one token can each forget it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[str, int] = {}
        self._forms: dict[str, set[str]] = {}
        # How many values have a spelling.
        self._anywhere: Counter[str] = Counter()
        self._in_words: Counter[str] = Counter()
        self.spellings = Spellings()

    def add(self, values: tuple[str, ...]) -> None:
        with self._lock:
            for value in values:
                if len(value) >= MIN_LENGTH and value not in MASK:
                    if value not in self._counts:
                        self._put(value)
                    self._counts[value] = self._counts.pop(value, 0) + 1
            while len(self._counts) > MAX_SECRETS:
                self._remove(next(iter(self._counts)))
            self._publish()

    def drop(self, values: tuple[str, ...]) -> None:
        with self._lock:
            for value in values:
                if value in self._counts:
                    self._counts[value] -= 1
                    if not self._counts[value]:
                        self._remove(value)
            self._publish()

    def _put(self, value: str) -> None:
        self._forms[value] = _spellings(value)
        for spelling in self._forms[value]:
            self._among(spelling)[spelling] += 1

    def _remove(self, value: str) -> None:
        del self._counts[value]
        for spelling in self._forms.pop(value):
            among = self._among(spelling)
            among[spelling] -= 1
            if not among[spelling]:
                del among[spelling]

    def _among(self, spelling: str) -> Counter[str]:
        return self._in_words if _is_long_word(spelling) else self._anywhere

    def _publish(self) -> None:
        longest = max(map(len, chain(self._anywhere, self._in_words)), default=0)
        self.spellings = Spellings(tuple(self._anywhere), tuple(self._in_words), longest)


def _is_long_word(spelling: str) -> bool:
    return len(spelling) >= _LONG_WORD and spelling.split() == [spelling]


def _spellings(value: str) -> set[str]:
    """The value as it appears in text: as it is, in JSON, a ``repr``, HTML, a URL, base64 and hex."""
    raw = _bytes(value)
    in_html = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    found = {value, repr(value)[1:-1], in_html, in_html.replace('"', "&quot;").replace("'", "&#x27;")}
    found.add(json.dumps(value)[1:-1].replace("/", "\\/"))  # as PHP and some JavaScript write it
    for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        found |= {quoted, _HEX_OF_URL.sub(lambda code: code[0].lower(), quoted), quote(quoted, safe="")}
    nested = {value}
    for _ in range(_JSON_DEPTH):
        nested = {json.dumps(each, ensure_ascii=plain)[1:-1] for each in nested for plain in (True, False)}
        nested = {each for each in nested if len(each) <= max(_MAX_SPELLING, 2 * len(value))}
        found |= nested
    found |= {raw.hex(), raw.hex().upper()}
    for encoded in _base64(raw):
        found |= {encoded, encoded.replace("+", "-").replace("/", "_")}
    return found


def _base64(raw: bytes) -> Iterator[str]:
    """``raw`` in base64, and its part of the base64 of a text that contains it, as in ``user:password``."""
    whole = base64.b64encode(raw).decode()
    yield from (whole, whole.rstrip("="))
    for before, begin in enumerate((0, 2, 3)):
        text = base64.b64encode(bytes(before) + raw).decode()
        part = text[begin : (before + len(raw)) * 8 // 6]
        if len(part) >= MIN_LENGTH:
            yield part


def _bytes(value: str) -> bytes:
    """The value in UTF-8, also one of an environment that is not."""
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")


_known = _Known()
# Names of tokens in files. They are not secret: `token:ci` names a caller.
_names: set[str] = set()


def name_tokens(names: Iterable[str]) -> None:
    """Do not mask ``token:NAME`` for these names, which identify callers and are not tokens."""
    _names.update(name.lower() for name in names)


def redact(*secrets: str) -> None:
    """Mask these exact values in every log record from now on (PR-36).

    Values shorter than 6 characters are ignored, since masking them would hide ordinary words. At most 4,096
    are kept; the oldest are dropped. Call ``forget`` once for each ``redact`` of a temporary value.
    """
    _known.add(secrets)


def forget(*secrets: str) -> None:
    """Undo one ``redact`` of each value."""
    _known.drop(secrets)


def is_sensitive(name: str) -> bool:
    """Whether a field, variable or header of that name, such as ``x-api-key`` or ``DB_PASS``, is a secret."""
    if _SENSITIVE.search(name):
        return True
    variable = name.upper().replace("-", "_")
    return bool(_VARIABLE_NAME.fullmatch(name) and _SENSITIVE_VARIABLE.search("_" + variable))


def beyond_cut() -> int:
    """How many characters behind a cut must be known, so that no part of a secret is left before it."""
    return max(_OVERLAP, _known.spellings.longest)


def known_spellings() -> Spellings:
    """The values that are masked now, for text that is masked later: see ``redact_text``."""
    return _known.spellings


def redact_text(text: str, known: Spellings | None = None, *, cut: bool = False) -> str:
    """``text`` with every secret replaced by ``[redacted]``. Idempotent; errs on the side of masking.

    ``known`` are the ``known_spellings`` of the time when the text arrived. They are masked too. A text that
    was ``cut`` before, or a string in it, may end within a secret: such a beginning is masked too.
    """
    spellings = _known.spellings
    if known is not None and known is not spellings:
        spellings |= known
    for spelling in spellings.found(text):
        text = text.replace(spelling, MASK)
    if cut:
        text = _without_beginnings(text, spellings)
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
    if "_" in text:
        text = _VARIABLE.sub(_mask_field, text)
    return _USERINFO.sub(f"://{MASK}@", text) if "://" in text else text


def redact_head(text: str, limit: int, mask: Callable[[str], str] = redact_text) -> str:
    """The first ``limit`` characters of ``text``, masked before they are cut."""
    beyond = beyond_cut()
    head = mask(text[: limit + beyond])
    # The beginning of a secret that goes on behind this is not recognised, and dropped.
    return head[:limit] if len(text) <= limit + beyond else head[:-beyond][:limit]


def redact_tail(text: str, limit: int) -> str:
    """The last ``limit`` characters of ``text``, masked before they are cut."""
    beyond = beyond_cut()
    tail = redact_text(text[-limit - beyond :])
    return tail[-limit:] if len(text) <= limit + beyond else tail[beyond:][-limit:]


def redact_url(url: str) -> str:
    """A URL without its password, and without the secrets that its query names or that are known."""
    return redact_text(_QUERY.sub(_mask_query, url))


def is_in_query(name: str) -> bool:
    """Whether a value of that name in the query of a URL is a secret."""
    return name.lower() in _IN_QUERIES or is_sensitive(name)


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


def _without_beginnings(text: str, spellings: Spellings) -> str:
    """``text`` without the beginnings of secrets with which strings in it end."""
    for spelling in spellings.all:
        pieces, done = [], 0
        start = text.find(spelling[:MIN_LENGTH])
        while start >= 0:
            end = start + MIN_LENGTH
            while text[end : end + 1] == spelling[end - start : end - start + 1] != "":
                end += 1
            if _END.match(text, end):
                pieces += [text[done:start], MASK]
                done = end
            start = text.find(spelling[:MIN_LENGTH], end)
        text = "".join((*pieces, text[done:])) if done else text
    return text


def _mask_query(match: re.Match[str]) -> str:
    return match["head"] + MASK if is_in_query(unquote_plus(match["name"])) else match[0]


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
    except ValueError:  # Unicode has other letters that are a k or an s
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
