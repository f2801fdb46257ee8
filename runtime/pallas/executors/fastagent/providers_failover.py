"""Runs one turn on the requested provider, or on its replacements while nothing was said yet."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from pallas.model import Event, Fault, LoopMessage, Rerouted, TextDelta, ToolEvent
from pallas.safe_text import one_line

from ..base import Emit, ExecutorTurn, TurnResult
from .fastagent_faults import ProviderFault, fault_of, name_key
from .providers import AgentProviders, ProviderModel
from .providers_llm import Models

log = logging.getLogger(__name__)

type Answer = Callable[[ExecutorTurn, ProviderModel], Awaitable[TurnResult]]


class HeardEvents:
    """Passes a run's events on and records whether any text or call was among them."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.something = False

    def emit(self, event: Event) -> None:
        """Pass one on."""
        if isinstance(event, ToolEvent | LoopMessage) or (isinstance(event, TextDelta) and event.text):
            self.something = True
        self._emit(event)


async def answered(
    providers: AgentProviders, models: Models, turn: ExecutorTurn, events: HeardEvents, answer: Answer
) -> TurnResult:
    """Return a turn's result and the provider that gave it. Raises Fault, with ``providerId`` if a provider
    failed.

    Another provider is called only if the previous one failed by its own fault (over its limit, 5xx, no
    connection) and before there was any text or call; at once, and each time with a Rerouted event (DR-32).
    """
    requested = providers.requested(turn.provider, turn.params.get("model", ""))
    line = providers.line(requested)
    tried: list[tuple[ProviderModel, ProviderFault]] = []
    for number, each in enumerate(line):
        last = number == len(line) - 1
        if tried or each.id != requested.id:
            why = (
                tried[-1][1].message
                if tried
                else f"it failed a moment ago: {providers.failure(requested.id)}"
            )
            _tell(turn, events, requested.id, each.id, why)
        try:
            async with models.answering(each, patient=last):
                result = await answer(turn, each)
        except Exception as error:
            fault = with_id(fault_of(error), each.id, providers.key_place(each))
            if not isinstance(fault, ProviderFault):
                raise
            if fault.elsewhere:
                providers.failed(each.id, fault.message)
            tried.append((each, fault))
            if last or events.something or not fault.elsewhere:
                raise _all(tried) from error
            continue
        providers.answered(each.id)
        return replace(result, backend=each.id)
    raise AssertionError("a failover list without a provider")


def with_id(fault: Fault, provider: str, key_place: str) -> Fault:
    """Return a provider's fault with the provider's id (DR-22) and the place of its key; other faults
    unchanged."""
    if not isinstance(fault, ProviderFault):
        return fault
    fault.data = {**fault.data, "providerId": provider}
    return name_key(fault, key_place)


def _tell(turn: ExecutorTurn, events: HeardEvents, requested: str, to: str, why: str) -> None:
    why = one_line(why, 300)
    log.warning(
        "%s: provider %s answers in place of %s: %s",
        turn.agent,
        to,
        requested,
        why,
        extra={"agent": turn.agent},
    )
    events.emit(Rerouted(run_id=turn.run_id, agent=turn.agent, asked=requested, to=to, why=why))


def _all(tried: list[tuple[ProviderModel, ProviderFault]]) -> ProviderFault:
    """Return the last fault, with the previous ones appended."""
    *before, (_, fault) = tried
    if not before:
        return fault
    failures = "; ".join(f"{each.id}: {one_line(earlier.message, 200)}" for each, earlier in before)
    return ProviderFault(
        fault.type,
        f"{fault.message}; before it {failures}",
        retryable=fault.retryable,
        data={**fault.data, "tried": [each.id for each, _ in tried]},
    )
