"""What is wrong with an answer of a model server whose status is 200."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import to_json

_MAX_WORDS: Final = 500
_WORDS: Final = (
    "message",
    "detail",
    "error_message",
    "error_msg",
    "errorMessage",
    "msg",
    "reason",
    "status_msg",
)
"""Where servers put the words of an error."""
_STATUS_KEYS: Final = ("code", "status_code", "status", "http_code")
_NAME_KEYS: Final = ("code", "status", "type")
_STATUS_OF: Final[Mapping[str, int]] = {
    "invalid_request_error": 400, "invalid_prompt": 400, "context_length_exceeded": 400,
    "invalid_argument": 400, "failed_precondition": 400,
    "authentication_error": 401, "invalid_api_key": 401, "unauthenticated": 401,
    "billing_error": 402,
    "permission_error": 403, "permission_denied": 403,
    "not_found_error": 404, "model_not_found": 404, "not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429, "rate_limit_exceeded": 429, "insufficient_quota": 429, "resource_exhausted": 429,
    "api_error": 500, "server_error": 500, "internal_server_error": 500, "internal": 500,
    "unavailable": 503, "service_unavailable": 503,
    "timeout_error": 504, "deadline_exceeded": 504,
    "overloaded_error": 529,
}  # fmt: skip
"""The HTTP status that the documentation of OpenAI, Anthropic or Google gives for an error of that name."""
_STATUS_OF_MINIMAX: Final = {1002: 429, 1004: 401, 1008: 402, 1039: 429, 2013: 400, 2049: 401}
_TITLE: Final = re.compile(r"<title[^>]*>([^<]{1,200})", re.IGNORECASE)


class AnswerError(Exception):
    """An answer of status 200 that is none. ``may_repeat``: the same request may succeed a little later."""

    may_repeat = True
    status_code: int | None = None
    """The HTTP status that the error stands for; None if it is not known."""


class ReportedError(AnswerError):
    """The error that the server reports, in its own words."""

    def __init__(self, words: str, status_code: int | None = None) -> None:
        super().__init__(words)
        self.status_code = status_code


class CutAnswerError(AnswerError):
    """A stream that ends before its answer does."""


class UnreadableCallError(AnswerError):
    """A call of a tool whose arguments are not a JSON object."""


class NothingSaidError(AnswerError):
    """An answer that ended before it had any text, for a reason that holds for the same request again."""

    may_repeat = False


class UnusableAnswerError(AnswerError):
    """What can never become an answer, however often it is asked for. ``fix`` says what to change."""

    may_repeat = False

    def __init__(self, words: str, fix: str = "check its base_url") -> None:
        super().__init__(words)
        self.fix = fix


def error_in(document: Any, answer_key: str) -> ReportedError | None:
    """Return the error that a document of a model server reports; None if it reports none.

    ``answer_key`` is the key that an answer has and an error has not.
    """
    if isinstance(document, list):
        found = (error_in(each, answer_key) for each in document)
        return next((each for each in found if each is not None), None)
    if not isinstance(document, dict):
        return None
    if error := document.get("error"):
        return _reported(error if error is not True else document)
    minimax = document.get("base_resp")  # also in an answer, with the code 0
    if isinstance(minimax, dict) and (code := minimax.get("status_code")):
        return ReportedError(_words_of(minimax), _STATUS_OF_MINIMAX.get(code) if type(code) is int else None)
    kind = document.get("type")
    if kind == "error" or document.get("object") == "error" or str(kind).endswith("_error"):
        return _reported(document)
    words = next((each for key in _WORDS if (each := document.get(key))), None)
    if kind is None and not document.get(answer_key) and isinstance(words, str | list):
        return _reported(document)
    return None


def no_answer(text: str) -> AnswerError:
    """Return the error for a body that is neither JSON nor a stream of events."""
    plain = text.strip()
    if not plain:
        return CutAnswerError("its body is empty")
    if plain.startswith("<") and not plain.startswith("<?xml"):
        title = _TITLE.search(plain)
        page = f"an HTML page ({title[1].strip()})" if title else "an HTML page"
        return UnusableAnswerError(f"it sent {page}")
    return UnusableAnswerError(f"it sent {_short(plain)}")


def not_json(data: bytes) -> UnusableAnswerError:
    """Return the error for an event that is not JSON."""
    return UnusableAnswerError(f"it sent an event that is not JSON: {_short(data.decode(errors='replace'))}")


def _reported(error: Any) -> ReportedError:
    return ReportedError(_words_of(error), _status_of(error) if isinstance(error, dict) else None)


def _words_of(error: Any) -> str:
    if _is_text(error):
        return str(error)[:_MAX_WORDS]
    if isinstance(error, list) and error:
        return _words_of(error[0])
    if isinstance(error, dict):
        found = next((error[key] for key in _WORDS if error.get(key)), None)
        metadata = error.get("metadata")
        raw = metadata.get("raw") if isinstance(metadata, dict) else None
        if found is not None:  # a gateway quotes the server behind it
            return f"{_words_of(found)}: {raw}"[:_MAX_WORDS] if _is_text(raw) else _words_of(found)
    return to_json(error, inf_nan_mode="null").decode(errors="replace")[:_MAX_WORDS]


def _status_of(error: Mapping[str, Any]) -> int | None:
    for key in _STATUS_KEYS:
        value = error.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value[:4])
        if type(value) is int and 400 <= value <= 599:
            return value
    names = [str(error.get(key)).lower() for key in _NAME_KEYS]
    return next((_STATUS_OF[each] for each in names if each in _STATUS_OF), None)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _short(text: str) -> str:
    plain = " ".join(text[:1000].split())
    return repr(plain if len(plain) <= 80 else f"{plain[:80]}…")
