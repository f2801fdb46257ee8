"""Backends that are called through fast-agent: each with its own settings, key and address.

Importing this module imports fast-agent: do so in a thread.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final
from urllib.parse import urlsplit

from pallas.config import Project
from pallas.config.kinds import BackendConfig
from pallas.executors.fastagent import commands_seam, model_registry, quick_connect
from pallas.executors.fastagent.fastagent_faults import (
    name_key,
    provider_failure,
    raise_failure,
    raise_if_cancelled,
)
from pallas.executors.fastagent.message_conversion import natives, text_of
from pallas.executors.fastagent.params_seam import RequestedParams, prepare
from pallas.executors.fastagent.provider_errors import status_of
from pallas.executors.fastagent.retry_policy import retry_after
from pallas.executors.fastagent.seam import silence_consoles
from pallas.executors.model_client.answer_errors import UnreadableCallError
from pallas.executors.model_client.call_arguments import note_in
from pallas.executors.model_client.provider_connections import provider_connections
from pallas.health.provider_endpoint import key_place
from pallas.llm.backend_selection import DEFAULT
from pallas.llm.provider_port import UNREADABLE, ModelAnswer, Provider
from pallas.llm.question import CompletionRequest
from pallas.model import Fault, FaultType, Params
from pallas.safe_text import one_line, sanitize

from . import completion_seam as seam

log = logging.getLogger(__name__)

MAX_ANSWER: Final = 4 * 1024 * 1024
"""Characters of an answer that a handler gets."""
MAX_RETRY_AFTER: Final = 86_400.0
"""The longest time in seconds to avoid a backend: one that says ``inf`` is not lost for ever."""
NO_KEY: Final = "none"
"""The key for a backend with its own address and no key: it must not get the project's."""
_MAX_MODELS: Final = 256
_REASONS: Final = {
    "endTurn": "stop",
    "stopSequence": "stop",
    "maxTokens": "length",
    "toolUse": "tool_calls",
}


class FastAgentProviders:
    """Makes backends that are called through fast-agent."""

    def __init__(self) -> None:
        silence_consoles()
        quick_connect.install()
        commands_seam.install()
        self._connections = AsyncExitStack()
        self._is_open = False

    async def provider(self, config: BackendConfig, project: Project) -> Provider:
        """Return a ready backend. Raises Fault (CONFIG) for settings that are not possible."""
        if not self._is_open:
            self._is_open = True
            await self._connections.enter_async_context(provider_connections().held())
        try:
            return await asyncio.to_thread(_Backend, config, project)
        except Exception as error:
            raise _config_fault(config, error) from error

    async def close(self) -> None:
        """Close the connections to the backends, unless agents use them."""
        self._is_open = False
        await self._connections.aclose()


class _Backend:
    """One backend."""

    def __init__(self, config: BackendConfig, project: Project) -> None:
        self._config = config
        self._project = project
        self._provider = config.provider
        section = project.settings.get(self._provider)
        there = str(section.get("base_url") or "") if isinstance(section, dict) else ""
        foreign = bool(config.base_url) and _place(config.base_url) != _place(there)
        self._key = config.api_key or (NO_KEY if foreign else None)
        self._base_url = config.base_url or None
        own = {"api_key": self._key or "", "base_url": config.base_url}
        self._settings = seam.settings_with(project.settings, self._provider, own, elsewhere=foreign)
        self._makers: dict[str, tuple[Callable[..., Any], str]] = {}

    async def ask(self, model: str, question: CompletionRequest, params: Params) -> ModelAnswer:
        """Ask once. Raises Fault."""
        llm = await self._model(model)
        try:
            answer, finish = await self._generate(llm, model, question, params)
            raw: dict[str, Any] = {"stop_reason": finish}
            if answer.tool_calls:
                raw["tool_calls"] = [
                    {"id": key, "name": call.params.name, "arguments": dict(call.params.arguments or {})}
                    for key, call in answer.tool_calls.items()
                ]
            taken, given = seam.counted(llm)
            return ModelAnswer(
                text=sanitize(text_of(answer), MAX_ANSWER),
                model=one_line(str(llm.model_name or model), 200),
                finish_reason=_REASONS.get(finish, finish or "stop"),
                tokens_in=taken,
                tokens_out=given,
                raw=raw,
            )
        finally:
            await _let_go(llm)

    async def _generate(
        self, llm: Any, model: str, question: CompletionRequest, params: Params
    ) -> tuple[Any, str]:
        llm.instruction = question.system or None
        asker = seam.ModelHolder(llm)
        prepare(asker)
        limit = model_registry.max_output(str(llm.model_name or ""), None)
        wish = RequestedParams(asker, params, limit)
        request = wish.prepare(llm.default_request_params)
        messages = natives(question.messages)
        try:
            with wish.held():
                answer = await llm.generate(messages, request)
        except Fault:
            raise
        except Exception as error:
            raise_if_cancelled()
            if isinstance(error, UnicodeEncodeError):  # an error in the question itself: it was not sent
                raise self._fault(
                    Fault(FaultType.PROTOCOL, f"cannot be sent this question: {error}"), None
                ) from error
            raise self._fault(provider_failure(error), error) from error
        try:
            raise_failure(answer)
        except Fault as fault:
            raise self._fault(fault, fault) from fault
        for call in (answer.tool_calls or {}).values():
            if note := note_in(call.params.arguments):
                unread = UnreadableCallError(f"its call of {one_line(call.params.name, 100)}: {note}")
                raise self._fault(provider_failure(unread), unread)
        finish = str(answer.stop_reason.value) if answer.stop_reason is not None else ""
        if finish == "cancelled":
            raise self._fault(Fault(FaultType.UPSTREAM, "the model's answer was cut off"), None)
        return answer, finish

    async def _model(self, model: str) -> Any:
        model_factory = self._makers.get(model)
        try:
            if model_factory is None:
                model_factory = await asyncio.to_thread(seam.maker_of, self._spec(model))
                if len(self._makers) >= _MAX_MODELS:
                    del self._makers[next(iter(self._makers))]
                self._makers[model] = model_factory
            return seam.model(*model_factory, self._settings, self._key, self._base_url)
        except Exception as error:
            raise _config_fault(self._config, error) from error

    def _spec(self, model: str) -> str:
        if self._config.id == DEFAULT and not self._project.llm.backends:
            own = str(self._project.settings.get("default_model") or "")
            if own and not own.startswith("$"):
                return own  # with the settings behind its name
        return f"{self._provider}.{model}" if self._provider else model

    def _fault(self, fault: Fault, error: BaseException | None) -> Fault:
        data = {**fault.data, "providerId": self._config.id}
        own = f"the api_key of backend {self._config.id}"
        name_key(fault, own if self._key else key_place(self._project, self._provider))
        if (status := status_of(error)) is not None:
            data["status"] = status
        elif error is not None and error is not fault and fault.type is FaultType.UPSTREAM:
            data[UNREADABLE] = True
        if (wait := retry_after(error)) is not None:
            data["retry_after"] = min(wait, MAX_RETRY_AFTER)
        return Fault(
            fault.type,
            f"backend {self._config.id}: {fault.message}",
            retryable=fault.retryable,
            code=fault.code,
            data=data,
        )


async def _let_go(llm: Any) -> None:
    try:
        closed = llm.close() if hasattr(llm, "close") else None
        if inspect.isawaitable(closed):
            await closed
    except Exception:
        log.debug("a model could not be released", exc_info=True)


def _place(url: str) -> str:
    """Return scheme, host and port of a URL: a key is for a host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower() if url else ""


def _config_fault(config: BackendConfig, error: Exception) -> Fault:
    if isinstance(error, Fault):
        return error
    fault = provider_failure(error)
    kind = fault.type if fault.type is FaultType.AUTH else FaultType.CONFIG
    message = fault.message if kind is FaultType.AUTH else one_line(str(error), 200)
    return Fault(kind, f"{config.where}: backend {config.id}: {message}", data={"providerId": config.id})
