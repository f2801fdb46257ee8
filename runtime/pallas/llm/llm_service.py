"""The service behind handlers' ``complete``: backends, budgets, and token counts (HC-27 to HC-33)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Final
from weakref import WeakKeyDictionary

from pallas.config import Project
from pallas.config.kinds import BackendConfig
from pallas.invocation import Completer, Completion, LLMResponse, TokenUsage
from pallas.model import Event, Fault, FaultType, Notice, Params
from pallas.safe_text import one_line
from pallas.telemetry.log import reapply_logging

from .backend import Backend
from .backend_request import BackendRequest
from .backend_selection import Selection, backends_of
from .provider_port import BackendProviders, ModelAnswer, Provider
from .question import CompletionRequest, estimated, read_params, read_question
from .token_budget import Budgets

log = logging.getLogger(__name__)

Ask = Callable[[Completion], Awaitable[LLMResponse]]

# A line's first so many characters, found in a text, count as a quotation of the prompt.
_QUOTED: Final = 12
# So many characters from the middle of a line count as one too.
_PIECE: Final = 24
_ways: Final[WeakKeyDictionary[object, Ask]] = WeakKeyDictionary()

LONGEST: Final = 600.0
"""Seconds for one question, waits and retries included, when no shorter limit is given."""
_ENDING: Final = 5.0

Emit = Callable[[Event], object]


def completer_of(ask: Ask) -> Completer:
    """Return a completer that holds nothing but the function to call."""
    completer = _Completer()
    _ways[completer] = ask
    return completer


class _Completer:
    __slots__ = ("__weakref__",)

    async def complete(self, completion: Completion) -> LLMResponse:
        """Ask the model. Raises Fault."""
        return await _ways[self](completion)


def shown(fault: Fault, prompt: str) -> Fault:
    """Return the fault without its cause, which holds the request and may be quoted by a provider."""
    if fault.__cause__ is not None:
        log.debug("a model could not be asked", exc_info=fault)
    fault = fault.with_traceback(None)
    fault.__cause__ = fault.__context__ = None
    if not _quotes(fault.message, prompt):
        return fault
    log.warning("a model's provider quotes what it was sent: %s", fault.message)
    return Fault(
        fault.type,
        "the model's provider refused the request; the log has the details",
        retryable=fault.retryable,
        code=fault.code,
        data=fault.data,
    )


def _quotes(message: str, prompt: str) -> bool:
    lines = [line.strip() for line in prompt.splitlines() if len(line.strip()) >= _QUOTED]
    if any(line[:_QUOTED] in message for line in lines):
        return True
    prompt_text, answer_text = " ".join(prompt.split()), " ".join(message.split())
    return any(answer_text[at : at + _PIECE] in prompt_text for at in range(len(answer_text) - _PIECE + 1))


@dataclass(frozen=True, slots=True)
class _Asker:
    """The agent that asks, and the prompt before its messages."""

    agent: str
    run_id: str
    run_agent: str
    conversation: str
    deadline: float | None
    emit: Emit
    prompt: str = field(repr=False)


@dataclass(slots=True)
class _Known:
    """A backend and its provider, made at its first question."""

    backend: Backend
    provider: Provider | None = None
    making: asyncio.Lock = field(default_factory=asyncio.Lock)


class LlmService:
    """Models for the handlers of one fleet; runs in its event loop.

    ``project`` returns the fleet's current project; ``publish`` (the hub's) receives warnings that belong to
    no run. The constructor imports nothing of fast-agent: that happens with the first question, in a thread.
    ``providers``, ``clock`` and ``sleep`` are for tests.
    """

    def __init__(
        self,
        project: Callable[[], Project],
        publish: Emit = lambda event: None,
        *,
        providers: BackendProviders | None = None,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._project = project
        self._publish = publish
        self._providers = providers
        self._clock, self._sleep = clock, sleep
        self._budgets = Budgets(self._warn)
        self._adopted: Project | None = None
        self._known: dict[str, _Known] = {}
        self._selection: Selection | None = None
        self._under_way: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()
        self._closed = False

    def completer(
        self,
        *,
        agent: str,
        thread: str,
        run_id: str = "",
        emit: Emit = lambda event: None,
        prompt: str = "",
        run_agent: str = "",
        conversation: str = "",
        deadline: float | None = None,
    ) -> Completer:
        """Return a completer for the handler ``agent``, in the frame ``thread`` of a run.

        ``prompt`` is put before its messages and never shown to it (HC-36). ``emit`` is the run's, and
        ``run_agent`` the run's agent (default: ``agent``). ``conversation`` identifies the budget: the id of
        the run's first frame, by default ``thread``. ``deadline`` (in ``time.monotonic``) bounds every wait.
        """
        asker = _Asker(
            agent=agent,
            run_id=run_id,
            run_agent=run_agent or agent,
            conversation=conversation or thread,
            deadline=deadline,
            emit=emit,
            prompt=prompt,
        )
        return completer_of(partial(self._complete, asker))

    def adopt(self, project: Project) -> None:
        """Use a reloaded project: backends that did not change keep their state."""
        before = self._known
        same = self._adopted is not None and _surroundings(self._adopted) == _surroundings(project)
        self._known = {}
        for config in backends_of(project):
            known = before.get(config.id)
            if known is None or _limits(known.backend.config) != _limits(config):
                known = _Known(Backend(config, clock=self._clock, sleep=self._sleep))
            elif not same:  # Its limits are the same; its keys may have changed.
                known = _Known(known.backend)
            self._known[config.id] = known
        self._adopted = project
        self._selection = Selection(project, [each.backend for each in self._known.values()])

    async def close(self) -> None:
        """End open questions with a Fault, and refuse new ones."""
        self._closed = True
        loop = asyncio.get_running_loop()
        for scope in self._under_way:
            if not scope.expired():  # It is ending already.
                scope.reschedule(loop.time())
        if self._under_way:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), _ENDING)
        self._known.clear()
        self._selection = None
        if self._providers is not None:
            await self._providers.close()

    def usage(self, agent: str) -> TokenUsage:
        """Return the tokens that a handler used since the start, or since ``reset`` (HC-30)."""
        return self._budgets.usage(agent)

    def usages(self) -> Mapping[str, TokenUsage]:
        """Return the usage of every handler that asked."""
        return self._budgets.usages()

    def reset(self, agent: str | None = None) -> None:
        """Reset the counts of one handler or of all; budgets of threads stay."""
        self._budgets.reset(agent)

    async def _complete(self, asker: _Asker, completion: Completion) -> LLMResponse:
        """Ask on behalf of a completer. Raises Fault."""
        question = read_question(completion.messages, asker.prompt)
        params = read_params(completion.params)
        selection = self._current()
        project = self._adopted
        assert project is not None
        model, candidates = selection.answering(str(completion.model or ""))
        deadline = min(
            self._clock() + LONGEST, asker.deadline if asker.deadline is not None else float("inf")
        )
        asking = BackendRequest(
            actor=asker.agent,
            run_id=asker.run_id,
            run_agent=asker.run_agent,
            emit=asker.emit,
            selection=selection,
            routing=project.llm,
            provider=self._ready,
            deadline=deadline,
            clock=self._clock,
            sleep=self._sleep,
        )
        limit = project.llm.max_tokens_per_thread
        with self._budgets.spending(asker.conversation, asker.agent, question.tokens, limit) as spending:
            found = await self._asker_of(asking, model, candidates, question, params, deadline)
            if isinstance(found, Fault):
                raise shown(found, asker.prompt)
            backend, answer = found
            spending.usage = _usage(question, answer)
        return LLMResponse(
            content=answer.text,
            model=answer.model or model,
            usage=spending.usage,
            finish_reason=answer.finish_reason,
            backend=backend.id,
            raw=answer.raw,
        )

    async def _asker_of(
        self,
        asking: BackendRequest,
        model: str,
        candidates: tuple[Backend, ...],
        question: CompletionRequest,
        params: Params,
        deadline: float,
    ) -> tuple[Backend, ModelAnswer] | Fault:
        """Return the answer, or the Fault, before the deadline."""
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock())) as scope:
                self._under_way.add(scope)
                self._idle.clear()
                try:
                    return await asking.answer(model, candidates, question, params)
                finally:
                    self._under_way.discard(scope)
                    if not self._under_way:
                        self._idle.set()
        except TimeoutError:
            if not scope.expired():
                raise
            return self._ended()
        except Fault as fault:
            return fault

    def _current(self) -> Selection:
        if self._closed:
            raise self._ended()
        project = self._project()
        if self._selection is None or self._adopted is not project:
            self.adopt(project)
        assert self._selection is not None
        return self._selection

    async def _ready(self, backend: Backend) -> Provider:
        known = self._known.get(backend.id)
        if known is None or known.backend is not backend:  # The files changed while it waited.
            known = _Known(backend)
        async with known.making:
            if known.provider is None:
                assert self._adopted is not None
                providers = self._providers = self._providers or await _load()
                known.provider = await providers.provider(backend.config, self._adopted)
            return known.provider

    def _warn(self, agent: str, used: int, limit: int) -> None:
        self._publish(
            Notice(
                level="warning",
                text=f"a conversation has used {used:,} of its {limit:,} tokens (llm.max_tokens_per_thread)",
                agent=one_line(agent),
            )
        )

    def _ended(self) -> Fault:
        if self._closed:
            return Fault(FaultType.TRANSPORT, "the fleet is stopping, and models are no longer asked")
        return Fault(
            FaultType.TIMEOUT, "no model answered in time; ask for less, or give the handler a longer timeout"
        )


async def _load() -> BackendProviders:
    """Import fast-agent in a thread: it takes seconds."""

    def load() -> BackendProviders:
        try:
            from pallas.executors.fastagent.completion_providers import FastAgentProviders
        finally:
            reapply_logging()  # Its imports install log handlers that write to the terminal.
        return FastAgentProviders()

    return await asyncio.to_thread(load)


def _limits(config: BackendConfig) -> BackendConfig:
    """Return a backend's settings without their position in the file."""
    return replace(config, where=BackendConfig("", "").where)


def _surroundings(project: Project) -> tuple[object, ...]:
    return project.provider, project.model, dict(project.settings)


def _usage(question: CompletionRequest, answer: ModelAnswer) -> TokenUsage:
    """Return the usage as the provider counted it, else as estimated."""
    taken = question.tokens if answer.tokens_in is None else answer.tokens_in
    given = estimated(len(answer.text)) if answer.tokens_out is None else answer.tokens_out
    return TokenUsage(taken, given)
