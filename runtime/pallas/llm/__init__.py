"""Models for handlers: ``await complete(model=..., messages=...)`` over several backends (HC-27 to HC-30)."""

from collections.abc import Mapping, Sequence
from typing import Any

from pallas.invocation import Completion, LLMResponse, TokenUsage, current
from pallas.limits.limit_reached import LimitReached
from pallas.model import Fault, FaultType

from .token_budget import BudgetExhausted

__all__ = ["BudgetExhausted", "LLMResponse", "LimitReached", "TokenUsage", "complete"]


async def complete(
    model: str = "",
    messages: Sequence[Mapping[str, Any]] = (),
    agent_id: str | None = None,
    **params: Any,
) -> LLMResponse:
    """Ask a model from within a typed handler and return its answer.

    ``model`` is the name of a model; empty stands for ``default_model`` of the project. ``messages`` are
    objects ``{"role": ..., "content": ...}``, at most 2,000 with 4 MiB of text; the last one is of a user or
    a tool. ``params`` are parameters of a model, such as ``temperature=0.2``. ``agent_id`` is ignored: the
    fleet knows which handler asks.

    Raises Fault: CONFIG outside of a message or for an unknown model, PROTOCOL for a wrong message or
    parameter, TIMEOUT, TRANSPORT, UPSTREAM or AUTH if no backend answers. Raises BudgetExhausted when the
    conversation has used up its tokens, and LimitReached when ``limits:`` in agents.yaml are reached.
    ``docs/providers.md#models-for-handlers`` describes how a backend is chosen.
    """
    invocation = current()
    if invocation is None or invocation.completer is None:
        raise Fault(
            FaultType.CONFIG, "complete() is for handlers of a fleet: there is no message being handled here"
        )
    return await invocation.completer.complete(Completion(model, messages, params))
