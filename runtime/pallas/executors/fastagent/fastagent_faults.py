"""Turns failures of fast-agent or of a provider into Faults that a caller may see."""

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from fast_agent.constants import FAST_AGENT_ERROR_CHANNEL, FAST_AGENT_PROVIDER_ERROR
from fast_agent.core.exceptions import (
    AgentConfigError,
    ModelConfigError,
    ProviderKeyError,
    ServerConfigError,
)
from fast_agent.llm.provider.error_utils import EmptyCompletionError
from fast_agent.types import PromptMessageExtended
from fast_agent.types.llm_stop_reason import LlmStopReason

from pallas.bounds.bodies import Undecodable
from pallas.executors.model_client.answer_errors import (
    CutAnswerError,
    NothingSaidError,
    UnreadableCallError,
    UnusableAnswerError,
)
from pallas.model import CredentialSource, Fault, FaultType
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from .provider_errors import (
    answer_error_in,
    connection_of,
    is_empty,
    is_unreadable,
    misfit_in,
    refusal_in,
    size_in,
    status_of,
)

_VARIABLE: Final = re.compile(r"set the (\w+) environment variable")
_PREAMBLE: Final = re.compile(r"\A[\w.-]+ request failed for model .*?(?: \(\w+[:=] ?[^()]*\))*: ", re.DOTALL)
"""What fast-agent puts before the text of a provider's library."""
_STATUS: Final = re.compile(r"\A\W*(?:Error code: |HTTP )?[45]\d\d\b[\s:.-]*")
"""The status with which libraries begin their text, where it is said before."""
_MESSAGE: Final = re.compile(r"""['"]message['"]: ?(['"])(?P<text>.+?)(?<!\\)\1""", re.DOTALL)
"""The provider's own words in an error object, as Python or JSON writes it."""
# What only the command line of fast-agent has: options, slash commands, its own commands and variables.
_OPTION: Final = re.compile(
    r"(?<![\w-])--(?:auth|client-metadata-url|endpoint|model|name|timeout)\b|/mcp (?:attach|connect)\b"
    r"|fast-agent (?:auth|host)\b|FAST_AGENT_MODEL"
)
_IN_LIST: Final = re.compile(r"(?:--model|FAST_AGENT_MODEL), ")
_SENTENCE: Final = re.compile(r"(?<=[.;]) ")
_THE_KEY: Final = "its key in fastagent.secrets.yaml or .env"


_NOTHING_SAID: Final = {
    LlmStopReason.SAFETY.value: "a filter of the provider",
    LlmStopReason.MAX_TOKENS.value: "the limit of output tokens",
    LlmStopReason.PAUSE.value: "a pause",
}
"""Reasons for the end of an answer that must have text or calls."""
NO_KEY: Final = "the model's provider has no usable key"
"""How the Fault for a missing key begins."""


class ProviderFault(Fault):
    """A failure of a model provider. ``elsewhere``: another provider may succeed (HC-27)."""

    elsewhere = False


def name_key(fault: Fault, place: str) -> Fault:
    """Return a fault about a key with the place where that key is written: file and variable."""
    fault.message = fault.message.replace(_THE_KEY, place, 1)
    return fault


def raise_if_cancelled() -> None:
    """Raise CancelledError if the current task was cancelled.

    fast-agent's providers catch the cancellation and return the partial answer: without this a cancelled
    run would go on.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def raise_failure(
    answer: PromptMessageExtended, cause: BaseException | None = None, *, written: int = 0
) -> None:
    """Raise the failure that an answer reports: a cancelled run, the Fault of a provider (DR-22); else
    return.

    ``cause`` is the exception behind the answer, if it is known; ``written`` counts the characters of the
    answer's text so far.
    """
    raise_if_cancelled()
    reason = answer.stop_reason.value if answer.stop_reason is not None else ""
    if reason in _NOTHING_SAID and not answer.content and not answer.tool_calls:
        raise _nothing_said(f"its stop reason is {_NOTHING_SAID[reason]}")
    if reason != "error":
        return
    if (refusal := refusal_in(cause)) is not None:
        raise refusal
    status = status_of(cause) or _status(answer)
    detail = _channel(answer, FAST_AGENT_ERROR_CHANNEL)
    if cause is None and str(empty := EmptyCompletionError()) in detail:
        cause = empty
    raise _provider_fault(status, detail, cause, written)


def provider_failure(error: Exception, *, written: int = 0) -> Fault:
    """Return the Fault for an exception that ended a model call after ``written`` characters of text."""
    if (refusal := refusal_in(error)) is not None:
        return refusal
    if isinstance(error, ProviderKeyError | ModelConfigError | AgentConfigError | ServerConfigError):
        return fault_of(error)
    return _provider_fault(status_of(error), str(error), error, written)


def without_options(text: str) -> str:
    """Return a text of fast-agent without advice about options and commands that only its own program has.

    Those are left out of a list; a sentence with any other is left out as a whole.
    """
    text = _IN_LIST.sub("", text).replace("fast-agent.yaml", "fastagent.config.yaml")
    lines = (
        " ".join(each for each in _SENTENCE.split(line) if not _OPTION.search(each))
        for line in text.splitlines()
    )
    return "\n".join(line for line in lines if line.strip())


def fault_of(error: BaseException) -> Fault:
    """Return the Fault for an exception: for a known cause with its fix, otherwise only with its kind."""
    if isinstance(error, Fault):
        return error
    first = _safe(str(error)) or "it does not say why"
    if isinstance(error, ProviderKeyError):
        if (status := status_of(error)) is not None:
            return _provider_fault(status, "" if status in (401, 403) else str(error), error)
        if found := _VARIABLE.search(error.details):
            first = f"{found[1]} is not set; put it into .env"
        return ProviderFault(FaultType.AUTH, f"{NO_KEY}: {first}")
    if isinstance(error, ModelConfigError) and first == _NO_MODEL:
        first = "it has no model; write model: into its card, or default_model: into fastagent.config.yaml"
    elif isinstance(error, ServerConfigError | AgentConfigError | ModelConfigError) and error.details:
        first = _safe(
            f"{error.message.rstrip('.')}: {', '.join(without_options(error.details).splitlines())}"
        )
    if isinstance(error, ServerConfigError | AgentConfigError | ModelConfigError):
        return Fault(FaultType.CONFIG, first)
    if (status := status_of(error)) is not None:
        return _provider_fault(status, str(error), error)
    if isinstance(error, TimeoutError):
        return Fault(FaultType.TIMEOUT, "the model or a tool did not answer in time")
    cause = f"{type(error).__name__}; the log has the traceback"
    return Fault(FaultType.INTERNAL, "the run failed; the log has the details", cause=cause)


_NO_MODEL: Final = "No model configured"
_REFUSED: Final[Mapping[CredentialSource, str]] = {
    "forwarded": "refused the caller's bearer (HTTP {status}); call with one that it accepts",
    "configured": "refused the configured credential (HTTP {status}); correct headers.Authorization",
    "none": "asks for a credential (HTTP {status}); call with a bearer where forward_inbound_auth is true, "
    "else give headers.Authorization",
}


def refused_fault(refused: Mapping[str, tuple[int, CredentialSource]]) -> Fault | None:
    """Return the Fault (AUTH) for downstreams that answered 401 or 403 on connecting; None without any."""
    detail_text = [
        f"downstream {one_line(name, 80)} {_REFUSED[source].format(status=status)}"
        for name, (status, source) in refused.items()
    ]
    if not detail_text:
        return None
    of_caller = any(source != "configured" for _, source in refused.values())
    return Fault(FaultType.AUTH, "; ".join(detail_text), data={"bearer": "refused"} if of_caller else {})


def starts_without_instance(fault: Fault) -> bool:
    """Return whether an agent starts although this prevented its first instance.

    Its health shows why: from probes of the downstreams, or from the checks of the providers.
    """
    lacks_server = (
        fault.type is FaultType.UPSTREAM and fault.retryable and not isinstance(fault, ProviderFault)
    )
    return lacks_server or fault.type is FaultType.AUTH


def _provider_fault(
    code: int | None, detail: str, cause: BaseException | None = None, written: int = 0
) -> ProviderFault:
    if (answer_error := answer_error_in(cause)) is not None:
        detail = str(answer_error)
    if (found := _answer_fault(cause, written)) is not None:
        return found
    detail = _own_words(detail) if code is not None else detail
    detail_text = f" ({_safe(detail)})" if detail else ""
    if code in (401, 403):
        return ProviderFault(
            FaultType.AUTH,
            f"the model's provider refused the key, HTTP {code}; correct {_THE_KEY}{detail_text}",
        )
    if code == 429:
        return _elsewhere(
            FaultType.UPSTREAM,
            f"the model's provider refused the request: rate limit, HTTP 429{detail_text}",
            retryable=True,
        )
    if code is not None:
        again = code >= 500 or code == 408
        make = _elsewhere if again else ProviderFault
        return make(
            FaultType.UPSTREAM, f"the model's provider failed, HTTP {code}{detail_text}", retryable=again
        )
    connection, why = connection_of(cause)
    if connection == "unreachable":
        return _elsewhere(
            FaultType.TRANSPORT, f"the model's provider cannot be reached: {why}; check its base_url"
        )
    if connection == "lost":
        what = "the model's provider closed the connection before it had answered"
        if written:
            what = f"the model's answer broke off after {written:,} characters: the connection was lost"
        return _elsewhere(FaultType.TRANSPORT, f"{what}; try again")
    if connection:
        make = _elsewhere if connection == "late" else ProviderFault
        return make(FaultType.TIMEOUT, "the model's provider did not answer in time; check its base_url")
    return ProviderFault(FaultType.UPSTREAM, f"the model's provider failed{detail_text}")


def _own_words(detail: str) -> str:
    """Return what the provider said, without the status, which is named before."""
    text = _STATUS.sub("", _PREAMBLE.sub("", detail, count=1), count=1)
    found = _MESSAGE.search(text) if text.lstrip().startswith("{") or " {" in text else None
    return _STATUS.sub("", found["text"], count=1) if found else text


def _answer_fault(cause: BaseException | None, written: int) -> ProviderFault | None:
    """Return the Fault for an answer of status 200 that cannot be used; None for any other failure."""
    error = answer_error_in(cause)
    if isinstance(error, CutAnswerError):
        where = f"broke off after {written:,} characters" if written else "ended before it had any text"
        return _elsewhere(FaultType.TRANSPORT, f"the model's answer {where} ({_safe(str(error))}); try again")
    if isinstance(error, UnusableAnswerError):
        return ProviderFault(
            FaultType.UPSTREAM,
            f"the model's provider sent no usable answer ({_safe(str(error))}); {error.fix}",
        )
    if isinstance(error, NothingSaidError):
        return _nothing_said(_safe(str(error)))
    if isinstance(error, UnreadableCallError):
        return ProviderFault(
            FaultType.UPSTREAM,
            f"the model's provider sent a call that cannot be made ({_safe(str(error))}); try again",
            retryable=True,
        )
    if misfit := misfit_in(cause):
        return ProviderFault(
            FaultType.UPSTREAM,
            f"the model's provider sent no usable answer ({_safe(misfit)}); check its base_url",
        )
    if (too_large := size_in(cause)) is not None:
        if isinstance(too_large, Undecodable):
            return ProviderFault(
                FaultType.UPSTREAM,
                f"the model's provider sent no usable answer ({_safe(str(too_large))}); check its base_url"
                " and the proxy before it",
            )
        return ProviderFault(FaultType.UPSTREAM, f"the model's answer is too large ({_safe(str(too_large))})")
    if is_empty(cause):
        return _elsewhere(
            FaultType.UPSTREAM,
            "the model's answer is empty: no text and no call of a tool; try again or another model",
            retryable=True,
        )
    if is_unreadable(cause):
        return ProviderFault(
            FaultType.UPSTREAM,
            "the model's answer cannot be read; the log has the details",
            cause=_safe(f"{type(cause).__name__}: {cause}"),
        )
    return None


def _nothing_said(reason: str) -> ProviderFault:
    return _elsewhere(
        FaultType.UPSTREAM,
        f"the model's answer ended before it had any text ({reason}); change the message, raise max_tokens"
        " or choose another model",
        retryable=False,
    )


def _elsewhere(kind: FaultType, message: str, *, retryable: bool | None = None) -> ProviderFault:
    fault = ProviderFault(kind, message, retryable=retryable)
    fault.elsewhere = True
    return fault


def _status(answer: PromptMessageExtended) -> int | None:
    try:
        status: Any = json.loads(_channel(answer, FAST_AGENT_PROVIDER_ERROR)).get("status")
    except (ValueError, AttributeError):
        return None
    return status if isinstance(status, int) else None


def _channel(answer: PromptMessageExtended, name: str) -> str:
    blocks = (answer.channels or {}).get(name, ())
    return "\n".join(text for block in blocks if (text := getattr(block, "text", "")))


def _safe(text: str) -> str:
    """Return one line of a foreign text, with secrets masked."""
    return one_line(redact_text(text), 300)
