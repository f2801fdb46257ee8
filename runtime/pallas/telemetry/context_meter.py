"""Measures what the parts of requests to models take of the provider's count of tokens, by agent.

Runs are measured some time after they end, together: by then their steps are cleaned for other readers.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from pallas.model.image_tokens import image_tokens

from .open_step import OpenStep
from .part_size import NO_SIZE, PartSize, size_of_message, size_of_tool
from .request_parts import MessageChain, RequestPart, RequestParts, Value
from .step_record import RunSteps
from .token_ratios import TokenRatio, TokenRatios

log = logging.getLogger(__name__)

WAIT: Final = 0.5
"""Seconds from the end of a run until it is measured."""
MAX_WAITING: Final = 256
"""Runs that wait; beyond that the oldest are left out."""
AT_ONCE: Final = 16
"""Runs that are measured without a break."""
MAX_AGENTS: Final = 1_000
LAST_STEPS: Final = 8
"""The last questions of a run to a model that count."""
_INSTRUCTION: Final = frozenset({"system", "instructions", "systemInstruction", "system_instruction"})
_HISTORY: Final = frozenset({"messages", "input", "contents"})
_DECLARATIONS: Final = ("functionDeclarations", "function_declarations")


class RequestSize(NamedTuple):
    """The sizes of the parts of a request; ``tools`` by their names."""

    instruction: PartSize = NO_SIZE
    tools: Mapping[str, PartSize] = {}
    history: PartSize = NO_SIZE
    other: PartSize = NO_SIZE

    @property
    def whole(self) -> PartSize:
        """The size of all of it."""
        return sum(self.tools.values(), self.instruction + self.history + self.other)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRequest:
    """The tokens of the parts of an agent's last request. They sum up to the provider's count, ``total``."""

    version: int  # of the agent
    model: str
    total: int
    instruction: float
    tools: Mapping[str, float]  # by their names
    history: float
    images: float
    other: float


class ContextMeter:
    """The last measured request of each agent, and what a byte takes. Belongs to one event loop.

    ``last`` and ``ratios.ratio`` may be called in any thread.
    """

    def __init__(self) -> None:
        self.ratios = TokenRatios()
        self._last: OrderedDict[str, MeasuredRequest] = OrderedDict()
        self._waiting: deque[tuple[str, int, RunSteps]] = deque(maxlen=MAX_WAITING)
        self._timer: asyncio.TimerHandle | None = None

    def note(self, agent: str, version: int, steps: RunSteps | None) -> None:
        """Measure a run that is over, in a moment. Returns at once."""
        if steps is not None and steps.steps:
            self._waiting.append((agent, version, steps))
            self._start()

    def last(self, agent: str) -> MeasuredRequest | None:
        """The agent's last request that a provider counted; None before there is one."""
        return self._last.get(agent)

    def settle(self) -> None:
        """Measure all runs that wait now."""
        while self._waiting:
            self._measure(*self._waiting.popleft())

    def close(self) -> None:
        """Measure nothing more."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WAIT, self._measure_some)

    def _measure_some(self) -> None:
        self._timer = None
        for _ in range(min(AT_ONCE, len(self._waiting))):
            self._measure(*self._waiting.popleft())
        if self._waiting:
            self._start()

    def _measure(self, agent: str, version: int, steps: RunSteps) -> None:
        try:
            for step in _counted(steps):
                if (measured := self._measured(step, version)) is not None:
                    self._last[agent] = measured
            while len(self._last) > MAX_AGENTS:
                self._last.popitem(last=False)
        except Exception:  # the run is over, and nothing else depends on this
            log.exception("the requests of run %s cannot be measured", steps.run_id)

    def _measured(self, step: OpenStep, version: int) -> MeasuredRequest | None:
        request, value = step.request, step.value
        if request is None or not value.usage.input:
            return None
        size, total = size_of(request), value.usage.input
        whole = size.whole
        images = float(pictures_tokens(whole, value.provider, value.name))
        if images >= total:  # the formula is another one there
            images = total / 2
        elif all(each.width for each in whole.pictures):
            self.ratios.learn(value.provider, value.name, whole, total - images)
        ratio = self.ratios.of(value.provider, value.name)
        return _shared(size, ratio, images, total, version, value.name)


def pictures_tokens(size: PartSize, provider: str, model: str) -> int:
    """The tokens of its pictures, by the provider's formula."""
    return sum(
        image_tokens(provider, model, each.width, each.height, is_low=each.is_low) for each in size.pictures
    )


def size_of(request: RequestParts) -> RequestSize:
    """The sizes of the parts of a request to a model, in the form of any provider."""
    instruction = history = other = NO_SIZE
    tools: Mapping[str, PartSize] = {}
    for name, value in request.fields:
        if isinstance(value, MessageChain):
            instruction = sum((_message(each.body) for each in value.leading), instruction)
            history += _chain(value.last)
        elif name in _INSTRUCTION:
            instruction += _message(_text(value))
        elif name in _HISTORY:
            history += _message(_text(value))
        elif name == "tools":
            tools = _tools(_text(value))
        elif isinstance(value, RequestPart):
            other += _other(value.body)
    return RequestSize(instruction, tools, history, other)


def _counted(steps: RunSteps) -> Iterator[OpenStep]:
    """The run's own last questions to models, oldest first: no summaries, and not what its tools asked."""
    found = [step for step in steps.steps if step.value.kind == "model" and not step.value.parent]
    yield from (step for step in found[-LAST_STEPS:] if step.value.state == "done")


def _shared(
    size: RequestSize, ratio: TokenRatio, images: float, total: int, version: int, model: str
) -> MeasuredRequest:
    estimated = ratio.tokens(size.whole)
    factor = (total - images) / estimated if estimated else 0.0

    def tokens(part: PartSize) -> float:
        return ratio.tokens(part) * factor

    return MeasuredRequest(
        version,
        model,
        total,
        tokens(size.instruction),
        {name: tokens(each) for name, each in size.tools.items()},
        tokens(size.history),
        images,
        tokens(size.other),
    )


def _text(value: Value) -> str:
    return value.body if isinstance(value, RequestPart) else value if isinstance(value, str) else ""


def _chain(last: RequestPart | None) -> PartSize:
    """The size of a conversation; only its new messages are measured."""
    new: list[RequestPart] = []
    part = last
    while part is not None and part.size is None:
        new.append(part)
        part = part.parent
    before = part.size if part is not None and part.size is not None else NO_SIZE
    for part in reversed(new):
        own = size_of_message(_decoded(part.body))
        if part.pictures:
            own = PartSize(own.prose, own.structure, part.pictures)
        before = part.size = before + own
    return before


@lru_cache(maxsize=64)
def _message(body: str) -> PartSize:
    return size_of_message(_decoded(body))


@lru_cache(maxsize=64)
def _other(body: str) -> PartSize:
    return size_of_tool(_decoded(body))


@lru_cache(maxsize=64)
def _tools(body: str) -> Mapping[str, PartSize]:
    found: dict[str, PartSize] = {}
    for tool in _listed(_decoded(body)):
        function = tool.get("function")
        inner = function if isinstance(function, Mapping) else tool
        name = str(inner.get("name") or tool.get("type") or next(iter(tool), ""))
        found[name] = found.get(name, NO_SIZE) + size_of_tool(inner)
    return found


def _listed(tools: Any) -> Iterator[Mapping[str, Any]]:
    """The tools of a list, also of one of Google's groups."""
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            inner = next((tool[name] for name in _DECLARATIONS if isinstance(tool.get(name), list)), None)
            yield from (tool,) if inner is None else (each for each in inner if isinstance(each, Mapping))


def _decoded(body: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return body
