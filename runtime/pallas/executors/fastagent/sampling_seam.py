"""``sampling/createMessage``: a server uses the fleet's model only if its entry has ``sampling:``.

fast-agent allows it to every server by default, without counting or logging. Here a run has an allowance: a
number of requests for each server that it calls, counted in the run's usage, and none after its end.
``tests/contract/test_hooks.py`` fails when the wrapped code changes.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakKeyDictionary

from fast_agent.mcp import sampling
from fast_agent.mcp.client_callback_runtime import MCPClientCallbackRuntime
from fast_agent.mcp.mcp_aggregator import MCPAggregator
from mcp_types import INVALID_REQUEST, ErrorData

from pallas.config.downstreams import SAMPLING_REQUESTS, SAMPLING_TOKENS
from pallas.mcp_client.library_hooks import Hook
from pallas.mcp_client.server_questions import ServerQuestions
from pallas.model import Usage
from pallas.safe_text import one_line

from . import model_client_seam
from .forward_trace import HOOKS as DISPATCH

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
# Keyed by the run's aggregator: a request may arrive in the context of the connection.
_runs: Final[WeakKeyDictionary[Any, SamplingAllowance]] = WeakKeyDictionary()


def allowance_of(aggregator: Any) -> SamplingAllowance | None:
    """Return the allowance of the run that calls servers with this aggregator."""
    return _runs.get(aggregator) if aggregator is not None else None


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


def _opted_in(original: Callable[..., Any]) -> Callable[..., Any]:
    def make_sampling_callback(self: Any) -> Any:
        has_entry = self.server_config is not None and self.server_config.sampling is not None
        return original(self) if has_entry else None

    return make_sampling_callback


def _limited(original: Callable[..., Any]) -> Callable[..., Any]:
    async def sampling_callback(self: Any, context: Any, params: Any) -> Any:
        server = one_line(self.display_server_name, 80)
        allowance = allowance_of(self.aggregator)
        if allowance is None:
            return _refusal("no run calls this server")
        settings = self.server_config.sampling.model_extra or {}
        limit = int(settings.get("max_requests", SAMPLING_REQUESTS))
        if refused := allowance.take(server, limit):
            if server not in allowance.refused:  # one line only: a server may ask without end
                allowance.refused.add(server)
                _tell(logging.WARNING, allowance, server, f"was refused: {refused}")
            return _refusal(refused)
        most = int(settings.get("max_tokens", SAMPLING_TOKENS))
        params = params.model_copy(update={"max_tokens": min(params.max_tokens, most)})
        result = await allowance.answer(lambda: original(self, context, params))
        if isinstance(result, ErrorData) and result.code != INVALID_REQUEST:
            result = _refusal("the model gave no answer")  # the provider's error text is not for the server
        outcome = "failed" if isinstance(result, ErrorData) else "was answered"
        _tell(
            logging.INFO,
            allowance,
            server,
            f"{outcome} ({allowance.request_counts[server]} of {limit} in this run)",
        )
        return result

    return sampling_callback


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


def _calling(original: Callable[..., Any]) -> Callable[..., Any]:
    async def execute_on_server(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (allowance := _allowance.get()) is not None:
            _runs[self] = allowance
        return await original(self, *args, **kwargs)

    return execute_on_server


HOOKS: Final = (
    Hook("sampling.opt_in", MCPClientCallbackRuntime, "_make_sampling_callback", ("self",), _opted_in),
    Hook(
        "sampling.limits",
        MCPClientCallbackRuntime,
        "_sampling_callback",
        ("self", "context", "params"),
        _limited,
    ),
    Hook(
        "sampling.usage",
        sampling,
        "create_sampling_llm",
        ("params", "model_string", "api_key", "app_context"),
        _noted,
    ),
    Hook("sampling.run", MCPAggregator, "_execute_on_server", DISPATCH[0].parameters, _calling),
)
