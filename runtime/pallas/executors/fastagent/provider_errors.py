"""Classifies failures between us and a model provider, by our exceptions and those of its library.

Libraries name things differently: OpenAI's calls a refused and a dropped connection a time-out. The causes
of the exception have the actual error.
"""

import errno
import socket
import ssl
from collections.abc import Iterator
from json import JSONDecodeError
from typing import Final, Literal

import aiohttp
import httpx2
from pydantic import ValidationError

from pallas.bounds.bodies import TooLarge
from pallas.executors.model_client.answer_errors import AnswerError
from pallas.model import Fault

Connection = Literal["", "unreachable", "lost", "late", "silent"]
"""``late``: no connection in time. ``silent``: there was one, and no answer in time."""

_MAX_CAUSES: Final = 10
_UNREACHABLE: Final = frozenset(
    {"ClientConnectorError", "ConnectError", "gaierror", "ConnectionRefusedError"}
)
_LOST: Final = frozenset(
    {
        "BrokenPipeError", "ClientConnectionResetError", "ClientOSError", "ClientPayloadError",
        "ConnectionAbortedError", "ConnectionResetError", "ReadError", "RemoteProtocolError",
        "ServerDisconnectedError", "WriteError",
    }
)  # fmt: skip
_LATE: Final = frozenset({"ConnectTimeout", "ConnectionTimeoutError"})
_EMPTY: Final = frozenset({"EmptyStreamError", "EmptyCompletionError"})
_UNREADABLE: Final = (
    TypeError, AttributeError, LookupError, AssertionError, JSONDecodeError, UnicodeError, ValidationError
)  # fmt: skip
_SILENT: Final = frozenset({"APITimeoutError", "ReadTimeout", "TimeoutError"})


def connection_of(error: BaseException | None) -> tuple[Connection, str]:
    """Return what happened to the connection, with the reason if there was none; empty for any other
    failure."""
    chain = list(_chain(error))
    names = [{kind.__name__ for kind in type(each).__mro__} for each in chain]
    if any(found & _UNREACHABLE for found in names):
        return "unreachable", next((why for each in chain if (why := _reason(each))), "no connection")
    if any(found & _LOST for found in names):
        return "lost", ""
    if any(found & _LATE for found in names):
        return "late", ""
    if any(found & _SILENT for found in names):
        return "silent", ""
    return ("lost", "") if any("APIConnectionError" in found for found in names) else ("", "")


def is_lost(error: BaseException) -> bool:
    """Return whether there was no connection, or it broke off."""
    return connection_of(error)[0] in ("unreachable", "lost")


def refusal_in(error: BaseException | None) -> Fault | None:
    """Return the Fault because of which a request was not sent; None if there is none."""
    return next((each for each in _chain(error) if isinstance(each, Fault)), None)


def answer_error_in(error: BaseException | None) -> AnswerError | None:
    """Return why an answer of status 200 is none; None if there is no such error."""
    return next((each for each in _chain(error) if isinstance(each, AnswerError)), None)


def size_in(error: BaseException | None) -> TooLarge | None:
    """Return the error about an answer that is too large; None if there is none."""
    return next((each for each in _chain(error) if isinstance(each, TooLarge)), None)


def misfit_in(error: BaseException | None) -> str:
    """Return why no request to that address can be answered; empty for any other failure."""
    for each in _chain(error):
        if isinstance(each, httpx2.TooManyRedirects):
            return "its redirects lead to further redirects"
        if isinstance(each, aiohttp.ClientResponseError):
            return f"it does not answer with HTTP: {each.message}"
    return ""


def is_empty(error: BaseException | None) -> bool:
    """Whether an answer is whole, and nothing is in it."""
    return type(error).__name__ in _EMPTY


def is_unreadable(error: BaseException | None) -> bool:
    """Whether a library failed at an answer that it did not expect: its words say nothing to a user."""
    return isinstance(error, _UNREADABLE)


def status_of(error: BaseException | None) -> int | None:
    """Return the HTTP status of a provider's answer; None without one.

    Google's library calls it ``code``, and its failures are causes of fast-agent's ProviderKeyError.
    """
    for each in (error, getattr(error, "__cause__", None), answer_error_in(error)):
        status = getattr(each, "status_code", None)
        if status is None and type(each).__module__.startswith("google."):
            status = getattr(each, "code", None)
        if isinstance(status, int):
            return status
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_MAX_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _reason(error: BaseException) -> str:
    if isinstance(error, socket.gaierror):
        return "its host name cannot be resolved"
    if isinstance(error, ssl.SSLError) or "certificate" in type(error).__name__.lower():
        return "its TLS certificate or protocol is not accepted"
    if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        return "connection refused"
    if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return "no route to its host"
    return ""
