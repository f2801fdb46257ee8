"""Asks the meter of a run before each question to a model, and tells it afterwards what that used.

A question for which a limit leaves no room is not asked: its answer is one sentence on that limit, so that
the agent's loop ends in the usual way, with all that it has.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from fast_agent.types import PromptMessageExtended
from fast_agent.types.llm_stop_reason import LlmStopReason
from mcp_types import ImageContent, TextContent

from pallas.limits.limit_reached import STOP_REASON, LimitReached
from pallas.limits.meter import CallMeter, ModelCall, ModelMeter, ModelUse
from pallas.telemetry.open_step import OpenStep
from pallas.telemetry.step_record import model_step
from pallas.telemetry.trace_context import current_run

from ..base import TurnResult
from . import model_registry

RAISES: Final = "_pallas_raises_limits"
"""Marks a model object whose caller gets a limit as a Fault: a handler, which is no loop."""


def current_meter() -> ModelMeter | None:
    """The meter of the run that this code works for; None where nothing limits it."""
    run = current_run()
    return run.meter if run is not None else None


async def metered(llm: Any, provider: str, given: Sequence[Any], ask: Callable[[], Awaitable[Any]]) -> Any:
    """The result of ``ask``, as a step of the current run; or words, where a limit leaves no room for it.

    ``given`` are the arguments of fast-agent's call. Raises LimitReached for a model of a handler.
    """
    meter = current_meter()
    if meter is None:
        with model_step(provider, str(llm.model_name or "")):
            return await ask()
    call = _call_of(llm, provider, given)
    try:
        reserved = await meter.reserve(call)
    except LimitReached as reached:
        if getattr(llm, RAISES, False):
            raise
        return _in_words(reached)
    step: OpenStep | None = None
    answer: Any = None
    try:
        with model_step(provider, call.model) as step:
            answer = await ask()
            return answer
    finally:
        _settle(reserved, step, answer)


def ended_by_limit(result: TurnResult) -> TurnResult:
    """The result of a turn, with the stop reason of one that a limit has ended.

    Raises LimitReached if the turn has no text but the words on that limit.
    """
    meter = current_meter()
    reached = meter.reached if meter is not None else None
    texts = [text for text in result.texts if text]
    if reached is None or not texts or not texts[-1].endswith(reached.words):
        return result
    if texts == [reached.words]:
        raise reached
    return replace(result, stop_reason=STOP_REASON)


def _in_words(reached: LimitReached) -> PromptMessageExtended:
    block = TextContent(type="text", text=reached.words)
    return PromptMessageExtended(role="assistant", content=[block], stop_reason=LlmStopReason.END_TURN)


def _settle(reserved: CallMeter, step: OpenStep | None, answer: Any) -> None:
    use = ModelUse()  # its estimate counts if it cannot be read what became of it
    try:
        use = _use_of(step, answer)
    finally:
        reserved.settle(use)


def _use_of(step: OpenStep | None, answer: Any) -> ModelUse:
    if step is None:
        return ModelUse(sent=False, answered=False)
    value = step.value
    is_answered = isinstance(answer, PromptMessageExtended | tuple) and value.state == "done"
    return ModelUse(
        value.usage,
        model=value.name,
        url=value.url,
        sent=bool(value.attempts),
        # A question that was cut short was sent: what it cost is not known.
        answered=is_answered or (value.state == "failed" and value.fault == "CancelledError"),
        written=len(step.response),
        cost=value.cost,
    )


def _call_of(llm: Any, provider: str, given: Sequence[Any]) -> ModelCall:
    _, messages, *others = given
    params = next((each for each in others if hasattr(each, "max_tokens")), None)
    tools = others[-1] if others and isinstance(others[-1], list) else ()
    model = str(getattr(llm, "model_name", "") or "")
    size, images = len(getattr(llm, "instruction", None) or ""), 0
    for message in messages if isinstance(messages, list) else [messages]:
        characters, pictures = _size_of(message)
        size, images = size + characters, images + pictures
    size += sum(len(str(tool.name)) + len(str(tool.description)) + len(repr(_schema(tool))) for tool in tools)
    return ModelCall(
        provider,
        model,
        size=size,
        images=images,
        max_output=getattr(params, "max_tokens", None) or model_registry.max_output(model, None) or 0,
        url=_url(llm),
    )


def _schema(tool: Any) -> Any:
    return getattr(tool, "input_schema", None) or getattr(tool, "inputSchema", None)


def _url(llm: Any) -> str:
    find = getattr(llm, "_base_url", None)
    return str(find() or "") if callable(find) else ""


def _size_of(message: PromptMessageExtended) -> tuple[int, int]:
    """The characters and the pictures of a message."""
    size, images = _size_of_blocks(message.content)
    for call in (message.tool_calls or {}).values():
        size += len(call.params.name) + len(repr(call.params.arguments or {}))
    for result in (message.tool_results or {}).values():
        characters, pictures = _size_of_blocks(result.content)
        size, images = size + characters, images + pictures
    return size, images


def _size_of_blocks(blocks: Iterable[Any]) -> tuple[int, int]:
    size = images = 0
    for block in blocks:
        if isinstance(block, TextContent):
            size += len(block.text)
        elif isinstance(block, ImageContent):
            images += 1
        else:
            size += len(repr(block))
    return size, images
