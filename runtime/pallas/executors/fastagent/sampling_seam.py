"""``sampling/createMessage``: a server uses the fleet's model only if its entry has ``sampling:``.

fast-agent allows it to every server by default, without counting or logging. Here a run has an allowance: a
number of requests for each server that it calls, counted in the run's usage, and none after its end.
``tests/contract/test_hooks.py`` fails when the wrapped code changes.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from fast_agent.mcp import sampling
from mcp_types import INVALID_REQUEST, ErrorData

from pallas.config.downstreams import SAMPLING_REQUESTS, SAMPLING_TOKENS
from pallas.mcp_client.library_hooks import Hook
from pallas.mcp_client.server_questions import ServerQuestions
from pallas.model import Usage
from pallas.safe_text import one_line

from . import model_client_seam

log = logging.getLogger(__name__)

_OVER: Final = "the run that called this server is over"


class SamplingAllowance:
    """The allowance of one run's servers, the ``models`` that answered, and the servers' ``questions``.

    ``end`` cancels pending requests: no model is called, and no person asked, for a run that has ended.
    """

    def __init__(self, agent: str, run_id: str) -> None:
        self.agent = agent
        self.questions = ServerQuestions(agent)
        self.run_id = run_id
        self.request_counts: Counter[str] = Counter()
        self.refused: set[str] = set()
        self.models: list[Any] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_ended = False

    def take(self, server: str, limit: int) -> str:
        """Count a request of ``server``; return why it is refused, empty if it is not."""
        if self._is_ended:
            return _OVER
        if self.request_counts[server] >= limit:
            return f"this server has used its {limit} sampling requests of this run"
        self.request_counts[server] += 1
        return ""

    async def answer(self, request: Callable[[], Any]) -> Any:
        """Return the result of ``request``, unless the run ends first."""
        token = _created_llms.set(self.models)
        try:
            task = asyncio.ensure_future(request())
        finally:
            _created_llms.reset(token)
        self._tasks.add(task)
        try:
            await asyncio.wait({task})
            # fast-agent turns a cancellation into an empty answer.
            if task.cancelled() or self._is_ended:
                return _refusal(_OVER)
            return task.result()
        finally:
            task.cancel()
            self._tasks.discard(task)

    def end(self) -> None:
        """End the run."""
        self._is_ended = True
        self.questions.end()
        for task in self._tasks:
            task.cancel()


_allowance: ContextVar[SamplingAllowance | None] = ContextVar("pallas_sampling", default=None)
_created_llms: ContextVar[list[Any] | None] = ContextVar("pallas_sampling_models", default=None)


def current_allowance() -> SamplingAllowance | None:
    """Return the allowance of the run that this code works for."""
    return _allowance.get()


@contextmanager
def allowing(agent: str, run_id: str) -> Iterator[SamplingAllowance]:
    """Allow the servers that are called in this block to use the model, as their entries say."""
    allowance = SamplingAllowance(agent, run_id)
    token = _allowance.set(allowance)
    try:
        yield allowance
    finally:
        _allowance.reset(token)
        allowance.end()


def usage_of(models: Any) -> Usage:
    """Return the tokens of fast-agent models as their providers counted them; None if none did."""
    counted = [model.usage_accumulator for model in models if model.usage_accumulator is not None]
    turns = [turn for each in counted for turn in each.turns]
    taken = [turn.prompt.total for turn in turns if turn.prompt.total is not None]
    given = [turn.completion.total for turn in turns if turn.completion.total is not None]
    return Usage(sum(taken) if taken else None, sum(given) if given else None)


def sampling_callback(
    server: str,
    entry: Any,
    ask: Callable[[Any], Awaitable[Any]],
    run: Callable[[], SamplingAllowance | None],
) -> Any:
    """Return what answers the sampling requests of a server; None if its ``entry`` has no ``sampling:``.

    ``ask`` asks a model; ``run`` gives the allowance of the run that calls the server.
    """
    if entry is None:
        return None
    settings = entry.model_extra or {}
    limit = int(settings.get("max_requests", SAMPLING_REQUESTS))
    most = int(settings.get("max_tokens", SAMPLING_TOKENS))
    server = one_line(server, 80)

    async def answer(context: Any, params: Any) -> Any:
        allowance = run()
        if allowance is None:
            return _refusal("no run calls this server")
        if refused := allowance.take(server, limit):
            if server not in allowance.refused:  # one line only: a server may ask without end
                allowance.refused.add(server)
                _tell(logging.WARNING, allowance, server, f"was refused: {refused}")
            return _refusal(refused)
        asked = params.model_copy(update={"max_tokens": min(params.max_tokens, most)})
        result = await allowance.answer(lambda: ask(asked))
        if isinstance(result, ErrorData) and result.code != INVALID_REQUEST:
            result = _refusal("the model gave no answer")  # the provider's error text is not for the server
        outcome = "failed" if isinstance(result, ErrorData) else "was answered"
        count = f"{allowance.request_counts[server]} of {limit} in this run"
        _tell(logging.INFO, allowance, server, f"{outcome} ({count})")
        return result

    return answer


def _refusal(why: str) -> ErrorData:
    return ErrorData(code=INVALID_REQUEST, message=f"sampling: {why}")


def _tell(level: int, allowance: SamplingAllowance, server: str, what: str) -> None:
    log.log(
        level,
        "%s: a sampling request of server %s %s",
        allowance.agent,
        server,
        what,
        extra={"agent": allowance.agent, "downstream": server, "run_id": allowance.run_id},
    )


def _noted(original: Callable[..., Any]) -> Callable[..., Any]:
    def create_sampling_llm(params: Any, model_string: str, api_key: Any, app_context: Any) -> Any:
        llm = original(params, model_string, api_key, app_context)
        model_client_seam.install(llm)
        if (created_llms := _created_llms.get()) is not None:
            created_llms.append(llm)
        return llm

    return create_sampling_llm


HOOK: Final = Hook(
    "sampling.usage",
    sampling,
    "create_sampling_llm",
    ("params", "model_string", "api_key", "app_context"),
    _noted,
)
