"""Gives the libraries of model providers our HTTP clients, makes them send each request once, and records it.

fast-agent makes a client of a provider's library for each model call, with a connection of its own. Clients
of OpenAI's API are kept for the next call that has the same address and credential.
``tests/contract/test_model_client_seam.py`` fails when the wrapped code changes.
"""

import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import cache
from time import monotonic
from typing import Any, Final

from fast_agent.mcp.auth.context import request_bearer_token

from pallas.executors.faults.fault_injection import current_injection
from pallas.executors.model_client.provider_connections import ClientKey, provider_connections
from pallas.executors.replay.replay import intercepting_replay, miss_fault
from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook
from pallas.model.fault_rules import BEDROCK
from pallas.model.fingerprint import fingerprint

from . import plain_requests_seam
from .metered_calls import metered
from .provider_errors import is_lost

CLIENTS: Final = ("_openai_client", "_responses_client", "_initialize_anthropic_client")
"""How fast-agent makes clients of the libraries of OpenAI and Anthropic."""
GOOGLE: Final = "_initialize_google_client"
GOOGLE_OPTIONS: Final = "_google_http_options"
CALL: Final = "_execute_with_retry"
"""How fast-agent calls a model, with its retries."""
OPENAI: Final = "fast_agent.llm.provider.openai.llm_openai"
"""Where fast-agent reads the streams of OpenAI's API."""
MAX_KEPT: Final = 8
"""Clients that one model object keeps."""
MADE_OF: Final = ("_api_key", "_base_url", "_default_headers")
"""The methods of a model object whose results make its client of OpenAI's API."""
SAME_FOR: Final = 1.0
"""Seconds after which a model's key and address are looked up again, in settings and variables."""
TRANSPORT: Final = "_transport"
"""Where the models of OpenAI's Responses API say how to send: ``auto`` tries a WebSocket first."""
_ANY, _HTTP = "auto", "sse"
_INSTALLED: Final = "_pallas_http_clients"


class _LostError(TimeoutError):
    """A lost connection to Google. fast-agent would ask again by itself after any other exception."""


def install(llm: Any) -> None:
    """Give the clients that this model object creates our connections; the second call does nothing."""
    if llm is None or getattr(llm, _INSTALLED, False):
        return
    for name in CLIENTS:
        if hasattr(llm, name):
            make = _with_ours(getattr(llm, name))
            setattr(llm, name, _kept(llm, make) if _makes_as_openai(llm, name) else make)
    if hasattr(llm, GOOGLE):
        setattr(llm, GOOGLE_OPTIONS, _google_options(llm, getattr(llm, GOOGLE_OPTIONS)))
        setattr(llm, GOOGLE, _google_client(getattr(llm, GOOGLE)))
    if hasattr(llm, CALL):
        setattr(llm, CALL, _recorded(llm, getattr(llm, CALL)))
    if getattr(llm, TRANSPORT, "") == _ANY:
        setattr(llm, TRANSPORT, _HTTP)  # what goes over a WebSocket is not recorded
    setattr(llm, _INSTALLED, True)


def _recorded(llm: Any, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def recorded(*given: Any, **options: Any) -> Any:
        injection, replay = current_injection(), intercepting_replay()
        if hasattr(llm, TRANSPORT) and (injection is not None or replay is not None):
            setattr(llm, TRANSPORT, _HTTP)
        provider = str(getattr(llm.provider, "config_name", llm.provider))
        if provider == BEDROCK and replay is not None:
            # It has a client of its own, which would ask for real.
            fault = miss_fault("models of Amazon Bedrock are not asked in a replay", "--models live")
            replay.note(fault)
            raise fault
        if injection is not None and provider == BEDROCK:
            injection.tell_uncovered(provider, str(llm.model_name))
        return await metered(llm, provider, given, lambda: call(*given, **options))

    return recorded


def _makes_as_openai(llm: Any, name: str) -> bool:
    """Whether ``llm`` makes clients of the address, key and headers that its own methods return."""
    made = sys.modules.get(OPENAI)
    return made is not None and getattr(type(llm), name, None) is getattr(made.OpenAILLM, name, None)


def _kept(llm: Any, make: Callable[[], Any]) -> Callable[[], Any]:
    """Return ``make``, which is called once for each address, key and set of headers.

    A client with the token of a caller is never kept: it belongs to the caller's run.
    """
    from .chat_stream_seam import send_streams_directly

    kept: OrderedDict[tuple[Any, ...], tuple[Any, Any]] = OrderedDict()
    last: tuple[Any, float] = None, 0.0

    def client() -> Any:
        nonlocal last
        found, since = last
        if monotonic() - since < SAME_FOR and request_bearer_token.get() is None:
            return found
        api_key, url, headers = (getattr(llm, name)() for name in MADE_OF)
        key = str(api_key), url, repr(sorted((headers or {}).items()))
        if (token := request_bearer_token.get()) and any(token in str(each) for each in key):
            return make()
        found, pool = kept.get(key, (None, None))
        # Pools that were unused for long are closed: then there is another for their key.
        if pool is None or provider_connections().client(pool.key) is not pool:
            found = make()
            pool = _http_client(found)
            kept[key] = found, pool
            library_hooks.install(ready_first())
            library_hooks.install(usage_hook())
            send_streams_directly(found, pool)
            if len(kept) > MAX_KEPT:
                kept.popitem(last=False)
        kept.move_to_end(key)
        last = found, monotonic()
        return found

    return client


@cache
def ready_first() -> Hook:
    """The hook where fast-agent limits the wait for each piece of a stream."""
    return Hook(
        name="ready-pieces-first",
        owner=sys.modules[OPENAI],
        attribute="with_stream_idle_timeout",
        parameters=("stream", "idle_timeout_seconds", "monotonic"),
        wrap=_ready_first,
    )


def _ready_first(original: Any) -> Any:
    from fast_agent.llm.provider.streaming_timeouts import _IdleTimeoutAsyncStream

    from .chat_stream_seam import CompletionStream

    class ReadyFirst(_IdleTimeoutAsyncStream[Any]):
        """Takes pieces that have arrived without a timer for each."""

        async def __anext__(self) -> Any:
            stream: Any = self._stream
            if (piece := stream.take_ready()) is None:
                return await super().__anext__()
            self._events_received += 1
            return piece

    def with_stream_idle_timeout(stream: Any, *, idle_timeout_seconds: Any, **options: Any) -> Any:
        if isinstance(stream, CompletionStream):
            return ReadyFirst(stream, idle_timeout_seconds=idle_timeout_seconds, **options)
        return original(stream, idle_timeout_seconds=idle_timeout_seconds, **options)

    return with_stream_idle_timeout


def _usage_where_there_is_one(find: Any) -> Any:
    from openai.types.chat import ChatCompletionChunk

    def _openai_usage(value: Any) -> Any:
        if type(value) is ChatCompletionChunk and value.usage is None:
            choice = value.choices[0] if value.choices else None
            if choice is None or not choice.model_extra:
                return None
        return find(value)

    return _openai_usage


@cache
def usage_hook() -> Hook:
    """The hook where fast-agent compares the type of each piece with two protocols, to find its usage."""
    return Hook(
        name="usage-where-there-is-one",
        owner=sys.modules[OPENAI],
        attribute="_openai_usage",
        parameters=("value",),
        wrap=_usage_where_there_is_one,
    )


def _http_client(client: Any) -> Any:
    return client._client


def _with_ours(make: Callable[[], Any]) -> Callable[[], Any]:
    def client() -> Any:
        found = make()
        plain_requests_seam.install()
        if not hasattr(found, "with_options"):  # Amazon's
            return found
        theirs = _http_client(found)
        ours = provider_connections().client(
            ClientKey(
                str(found.base_url),
                _credential(found),
                trust_env=theirs.trust_env,
                follow_redirects=theirs.follow_redirects,
            )
        )
        found = found.with_options(http_client=ours, max_retries=0)
        vars(found).update(_platform=_platform(type(found).__module__.partition(".")[0]))
        return found

    return client


@cache
def _platform(library: str) -> Any:
    """Return what a library finds out in a thread, for the first call of each client, about this machine."""
    return sys.modules[f"{library}._base_client"].get_platform()


def _credential(client: Any) -> str:
    """A fingerprint of the credentials that this client sends with each request."""
    key = getattr(client, "api_key", None) or getattr(client, "auth_token", None)
    headers = sorted(each for each in client.default_headers.items() if isinstance(each[1], str))
    return fingerprint(repr((str(key), headers)))


def _google_options(llm: Any, make: Callable[..., Any]) -> Callable[..., Any]:
    def options(**given: Any) -> Any:
        from google.genai.types import HttpOptions

        found = make(**given) or HttpOptions()
        key = "" if given.get("vertex_enabled") else str(llm._api_key())
        ours = provider_connections().client(
            ClientKey(f"google {found.base_url or ''}", fingerprint(repr((key, found.headers))))
        )
        return found.model_copy(update={"httpx_async_client": ours})

    return options


def _google_client(make: Callable[..., Any]) -> Callable[..., Any]:
    def client(**options: Any) -> Any:
        found = make(**options)
        stream = found.aio.models.generate_content_stream

        async def generate_content_stream(**request: Any) -> Any:
            try:
                return await stream(**request)
            except Exception as error:
                if is_lost(error):
                    raise _LostError(str(error)) from error
                raise

        found.aio.models.generate_content_stream = generate_content_stream
        return found

    return client
