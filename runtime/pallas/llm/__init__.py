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
    """Ask a model, from within a typed handler. ``messages`` as ``{"role": ..., "content": ...}``.

    An empty ``model`` is the project's own; ``params`` are an agent's. ``agent_id`` is accepted and ignored:
    the fleet knows which handler asks. Raises Fault, BudgetExhausted when a conversation has used up
    its tokens, LimitReached where ``limits:`` of agents.yaml leave no room.
    ``docs/providers.md#models-for-handlers`` describes how a backend is chosen.
    """
    invocation = current()
    if invocation is None or invocation.completer is None:
        raise Fault(
            FaultType.CONFIG, "complete() is for handlers of a fleet: there is no message being handled here"
        )
    return await invocation.completer.complete(Completion(model, messages, params))
