"""How often a failed model call is repeated: one policy for every provider (docs/providers.md).

A provider's library sends each request once (``model_client_seam``). fast-agent repeats it as often as
``llm_retries`` says, only if it may succeed, and after the wait that the provider asked for.
``tests/contract/test_retry_policy_seam.py`` fails when the wrapped code changes.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from fast_agent.core.exceptions import ProviderKeyError

from pallas.executors.replay.replay import is_hurried
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line
from pallas.telemetry.step_record import current_step

from .provider_errors import (
    Connection,
    answer_error_in,
    connection_of,
    is_empty,
    is_unreadable,
    misfit_in,
    refusal_in,
    size_in,
    status_of,
)

log = logging.getLogger(__name__)

Retrying = Callable[[str, int, int, float], None]
"""Gets why a call failed, the number of the retry, how many there may be, and the seconds until then."""

MAX_WAIT: Final = 60.0
"""The longest wait in seconds before a retry. If a provider asks for more, the call fails."""
_CONNECTIONS: Final[Mapping[Connection, str]] = {
    "lost": "the connection broke off",
    "late": "no connection in time",
    "silent": "no answer in time",
}
_REPEATED: Final = frozenset({408, 409, 425, 429})


def apply(llm: Any, told: Retrying) -> None:
    """Apply the policy to this model object; the second call does nothing.

    ``told`` is called before each wait.
    """
    if llm is None or not hasattr(llm, "_wait_before_retry") or "_wait_before_retry" in vars(llm):
        return
    _replace(llm, "_is_fatal_retry_error", _fatal)
    _replace(llm, "_is_request_too_large", _given_up)

    async def wait(error: Exception, *, attempt: int, retries: int) -> None:
        asked = retry_after(error)
        seconds = llm.retry_backoff_seconds * (attempt + 1) if asked is None else asked
        reason = _reason(error)
        log.warning(
            "a model call failed: %s; retry %d of %d in %.1f s", reason, attempt + 1, retries, seconds
        )
        if (step := current_step()) is not None:
            step.retry(reason, seconds)
        told(reason, attempt + 1, retries, seconds)
        await asyncio.sleep(0 if is_hurried() else seconds)

    llm._wait_before_retry = wait


def failure_handler(llm: Any) -> Any:
    """Return what a model object does with the failure of its last attempt; None if it has no such part."""
    return getattr(llm, "_handle_retry_failure", None)


def set_failure_handler(llm: Any, handle: Callable[[Exception], Any]) -> None:
    """Call ``handle`` when the last attempt of a call failed; the error is raised if it returns None."""
    llm._handle_retry_failure = handle


def _replace(llm: Any, method: str, wrap: Callable[[Any], Any]) -> None:
    """Give this model object alone another method; ``wrap`` gets the one that it has."""
    setattr(llm, method, wrap(getattr(llm, method)))


def may_repeat(error: Exception) -> bool:
    """Return whether the same request may succeed a little later."""
    if (retry_after(error) or 0.0) > MAX_WAIT or is_empty(error) or is_unreadable(error):
        return False
    if size_in(error) is not None or misfit_in(error):
        return False
    if (answer := answer_error_in(error)) is not None and not answer.may_repeat:
        return False
    if refusal_in(error) is not None or _header(error, "x-should-retry") == "false":
        return False
    status = status_of(error)
    return status is None or status >= 500 or status in _REPEATED


def retry_after(error: BaseException | None) -> float | None:
    """Return the seconds that a provider asked to wait, given as a number or a date; None without them."""
    if not (header := _header(error, "retry-after")):
        return None
    try:
        seconds = float(header)
        return None if math.isnan(seconds) else max(0.0, seconds)
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(header)
    except (ValueError, TypeError):
        return None
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


def _header(error: BaseException | None, name: str) -> str:
    """Return a header of a provider's answer; empty without it."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is None and isinstance(error, ProviderKeyError):
        return _header(error.__cause__, name)
    return str(headers.get(name) or "") if headers is not None else ""


def _reason(error: Exception) -> str:
    """Return why a call failed, in a few words."""
    if status := status_of(error):
        return f"HTTP {status}"
    if (answer := answer_error_in(error)) is not None:
        return one_line(redact_text(str(answer)), 80)
    connection, why = connection_of(error)
    if connection == "unreachable":
        return one_line(why, 80)
    return _CONNECTIONS.get(connection) or one_line(type(error).__name__, 80)


def _fatal(is_fatal: Callable[[Exception], Any]) -> Callable[[Exception], bool]:
    def fatal(error: Exception) -> bool:
        if isinstance(error, ProviderKeyError):  # Google's failures are all of this class
            return status_of(error) is None
        return bool(is_fatal(error))

    return fatal


def _given_up(is_too_large: Callable[[Exception], Any]) -> Callable[[Exception], bool]:
    def give_up(error: Exception) -> bool:
        return bool(is_too_large(error)) or not may_repeat(error)

    return give_up
