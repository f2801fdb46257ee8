"""Records the steps of runs: what was asked, each attempt, what came back, and what it used.

There is one recorder for all readers; executors report to it. Steps of the last runs are in memory;
``runs.run_recorder`` writes them to the ledger when their run ends. One event loop only.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from time import time
from typing import Any, Final

from pallas.model import Blob, Cost, ModelCost, Step, StepDetail, StepKind, StepUsage, StoredStep
from pallas.model.host_places import NOWHERE, HostPlaces
from pallas.model.redaction import MASK, Spellings, known_spellings, redact_text
from pallas.prices.price_book import PriceBook
from pallas.safe_text import one_line

from .open_step import OpenStep
from .request_parts import PartCache, RequestPart, RequestParts
from .ring_store import RingStore
from .trace_context import current_run
from .wire_record import masked

MAX_BYTES: Final = 32 * 1024 * 1024
MAX_RUNS: Final = 500
MAX_STEPS: Final = 500
"""Most steps of one run that are recorded; the oldest are dropped."""
MAX_USE_ID: Final = 200
"""Most characters of the id of a call that a model gave it."""
MAX_UNSETTLED: Final = 64
"""Most steps whose texts are not cleaned yet."""
MAX_UNSETTLED_BYTES: Final = 256 * 1024


def _tell_none(step: OpenStep) -> None: ...


class RunSteps:
    """The steps of one run. ``scope`` is the conversation that its messages belong to.

    ``tell`` is called with each step that is new or changed. ``before`` steps were made by another fleet.
    What all of them cost is known here even if they are dropped.
    """

    __slots__ = ("_costs", "_made", "_record", "is_dropped", "open_calls", "run_id", "scope", "steps", "tell")

    def __init__(
        self,
        record: "StepRecord",
        run_id: str,
        scope: str,
        before: int = 0,
        tell: Callable[[OpenStep], None] = _tell_none,
    ) -> None:
        self._costs: dict[str, Cost] = {}
        self._record = record
        self._made = before
        self.run_id = run_id
        self.scope = scope
        self.steps: list[OpenStep] = []
        self.open_calls: set[int] = set()
        self.is_dropped = False
        self.tell = tell

    def begin(
        self,
        kind: StepKind = "model",
        *,
        name: str = "",
        provider: str = "",
        parent: int = 0,
        call_id: str = "",
        span_id: str = "",
        tool_use_id: str = "",
        request: RequestParts | None = None,
    ) -> OpenStep:
        """Record that a step begins."""
        self._made += 1
        value = Step(
            self.run_id,
            self._made,
            kind,
            one_line(redact_text(name), 200),
            time(),
            provider=one_line(provider, 80),
            digest=request.digest if request is not None else "",
            parent=parent,
            call_id=call_id,
            span_id=span_id,
            tool_use_id=one_line(redact_text(tool_use_id), MAX_USE_ID),
        )
        step = OpenStep(self, value, request)
        if not self.is_dropped:
            self.steps.append(step)
            if len(self.steps) > MAX_STEPS:
                self.drop_oldest()
            self.grow(step.size)
            self.tell(step)
        return step

    def repeat(self, detail: StepDetail) -> None:
        """Record a step of another run once more, under the number that it had there."""
        value = detail.step
        self._made = value.number - 1
        step = self.begin(value.kind)
        # It was paid for there.
        cost = None if Cost.of(value).is_empty else 0
        value = replace(value, run_id=self.run_id, started_at=time(), cost=cost, unpriced=0)
        own = replace(detail, step=value)
        # The result of a recorded call has its pictures, which are kept elsewhere.
        result = _loaded(detail.response) if value.kind != "model" else {}
        content = result.get("content")
        step.receive(replace(own, response="") if isinstance(content, list) else own, value.parent)
        if isinstance(content, list):
            blocks = [each for each in content if isinstance(each, dict)]
            is_error, structured = bool(result.get("isError")), result.get("structuredContent")
            step.content(blocks, is_error=is_error, structured=structured)

    def split(self, body: bytes, known: Spellings | None = None) -> RequestParts:
        """The parts of a request to a model; ``known`` as in ``redaction.redact_text``."""
        return self._record.cache.split(body, self.scope, known)

    def split_call(self, name: str, arguments: Mapping[str, Any]) -> RequestParts:
        """The parts of a call."""
        body = json.dumps(arguments, ensure_ascii=False, default=str).encode("utf-8", "replace")
        return self._record.cache.split_call(name, body, self.scope)

    def clean(self, text: str, known: Spellings | None = None, *, cut: bool = False) -> str:
        """A JSON text that came back, masked; ``known`` and ``cut`` as in ``redaction.redact_text``.

        Also without the secrets that earlier texts of the conversation had.
        """
        forgotten = self._record.cache.forgotten
        found = masked(forgotten.masked_text(self.scope, text), known, cut=cut)
        if MASK in found:
            forgotten.note(self.scope, text, known or known_spellings())
        return found

    def settle_later(self, step: OpenStep, size: int) -> None:
        """Clean ``size`` bytes of texts of a step together with those of others."""
        self._record.settle_later(step, size)

    def grow(self, by: int) -> None:
        """Add bytes to the size of the record."""
        if not self.is_dropped:
            self._record.grow(by)

    def price_of(self, step: Step, usage: StepUsage) -> int | None:
        """As ``StepRun``."""
        prices = self._record.prices
        return prices.price(step.provider, step.name, usage, step.started_at, step.url) if prices else None

    def expect_price(self, step: Step) -> None:
        """As ``StepRun``."""
        if self._record.prices is not None:
            self._record.prices.prepare(step.provider, step.name, step.url)

    def charge(self, model: str, cost: Cost) -> None:
        """As ``StepRun``."""
        if not cost.is_empty:
            self._costs[model] = self._costs.get(model, Cost()) + cost

    @property
    def cost(self) -> Cost:
        """What its steps cost so far."""
        return Cost.sum(self._costs.values())

    @property
    def models(self) -> tuple[ModelCost, ...]:
        """The same by model."""
        return tuple(ModelCost(model, each.cost, each.unpriced) for model, each in self._costs.items())

    @property
    def keeps_pictures(self) -> bool:
        """Whether nothing else keeps the pictures of its calls: it is no run of a conversation."""
        return self.scope == self.run_id

    @property
    def count(self) -> int:
        """The number of steps."""
        return len(self.steps)

    def drop_oldest(self) -> None:
        """Forget its oldest step."""
        oldest = self.steps.pop(0)
        oldest.drop()
        self._record.grow(-oldest.size)
        self.is_dropped = not self.steps

    def unwritten(self) -> list[OpenStep]:
        """The steps that are new or have ended since they were written to the ledger."""
        return [step for step in self.steps if step.written_as != step.value.state]

    def unstored(self, since: float, taken: set[RequestPart]) -> list[RequestPart]:
        """The parts of its requests to be stored, as ``RequestParts.unstored`` gives them, each once."""
        found: dict[RequestPart, None] = {}
        for step in self.steps:
            if step.request is not None:
                found |= dict.fromkeys(step.request.unstored(since, taken))
        return list(found)

    def end(self) -> None:
        """Mark the steps that are still open: their run is over, and gets no more steps."""
        for step in self.steps:
            step.finish("failed", "the run ended before the step did")
        self.tell = _tell_none


class StepRecord(RingStore[RunSteps]):
    """The steps of the last runs: at most ``MAX_RUNS`` runs and ``MAX_BYTES`` together.

    Without ``prices`` no price is known. Digests have the marks of ``places``.
    """

    def __init__(
        self,
        max_bytes: int = MAX_BYTES,
        max_runs: int = MAX_RUNS,
        prices: PriceBook | None = None,
        places: HostPlaces = NOWHERE,
    ) -> None:
        super().__init__(max_bytes, max_runs)
        self.prices = prices
        self.cache = PartCache(places=places)
        self._unsettled: list[OpenStep] = []
        self._unsettled_bytes = 0

    def settle_later(self, step: OpenStep, size: int) -> None:
        """Clean ``size`` bytes of texts of a step when it is read, or when enough of them wait."""
        self._unsettled.append(step)
        self._unsettled_bytes += size
        if len(self._unsettled) >= MAX_UNSETTLED or self._unsettled_bytes >= MAX_UNSETTLED_BYTES:
            waiting, self._unsettled, self._unsettled_bytes = self._unsettled, [], 0
            for each in waiting:
                each.settle()

    def open(
        self,
        run_id: str,
        scope: str,
        before: int = 0,
        tell: Callable[[OpenStep], None] = _tell_none,
    ) -> RunSteps:
        """Begin the record of a run of the conversation ``scope``, or go on after ``before`` steps."""
        return self.put(run_id, RunSteps(self, run_id, scope, before, tell))


def blobs_of(parts: Iterable[RequestPart]) -> list[Blob]:
    """Parts of requests as the ledger keeps them."""
    return [
        Blob(
            each.scope,
            each.digest,
            each.parent.digest if each.parent is not None else "",
            each.body,
            each.texts,
        )
        for each in parts
    ]


def uses_of(steps: Iterable[OpenStep], new: Iterable[RequestPart]) -> set[str]:
    """The digests of what these steps share with other runs, and of the long texts of ``new`` parts."""
    shared = {part for step in steps if step.request is not None for part in step.request.shared()}
    texts = (text.digest for part in (*shared, *new) for text in part.texts)
    return {*(part.digest for part in shared), *texts}


def stored(step: OpenStep) -> StoredStep:
    """A step as the ledger keeps it."""
    fields = step.request.stored() if step.request is not None else ()
    return StoredStep(step.value, fields, step.response, step.headers)


_step: ContextVar[OpenStep | None] = ContextVar("pallas_step", default=None)
# Of the run with this id: the last model step in this context, and the calls that it is in, outermost first.
_asked: ContextVar[tuple[str, int]] = ContextVar("pallas_asked", default=("", 0))
_calls: ContextVar[tuple[str, tuple[int, ...]]] = ContextVar("pallas_calls", default=("", ()))


def current_step() -> OpenStep | None:
    """The model step that this code works for; None outside of one."""
    step = _step.get()
    return step if step is not None and step.is_open else None


@contextmanager
def model_step(provider: str, model: str = "") -> Iterator[OpenStep | None]:
    """Bind this block to a step of the current run that asks ``model``, and end the step with it.

    Yields None outside of a run, or if steps are not recorded.
    """
    run = current_run()
    if run is None or run.steps is None:
        yield None
        return
    step = run.steps.begin(name=model, provider=provider, parent=enclosing_call(run.steps))
    token = _step.set(step)
    _asked.set((run.run_id, step.number))
    try:
        yield step
    except BaseException as error:
        step.finish("failed", type(error).__name__)
        raise
    else:
        step.end()
    finally:
        _step.reset(token)


def begin_call_step(
    kind: StepKind,
    name: str,
    arguments: Mapping[str, Any] | None,
    *,
    call_id: str = "",
    span_id: str = "",
    tool_use_id: str = "",
) -> OpenStep | None:
    """Begin a step of the current run that is no model's. What this context does next belongs to it.

    Returns None outside of a run, or if steps are not recorded. The caller finishes it; at the latest it ends
    with its run.
    """
    run = current_run()
    if run is None or run.steps is None:
        return None
    enclosing = enclosing_call(run.steps)
    asked_by, asked = _asked.get()
    step = run.steps.begin(
        kind,
        name=name,
        parent=asked if asked_by == run.run_id and asked > enclosing else enclosing,
        call_id=call_id,
        span_id=span_id,
        tool_use_id=tool_use_id,
        request=run.steps.split_call(name, arguments or {}),
    )
    number = step.number
    run.steps.open_calls.add(number)
    in_run, outer = _calls.get()
    around = (each for each in outer if in_run == run.run_id and each in run.steps.open_calls)
    _calls.set((run.run_id, (*around, number)))
    return step


def repeat_steps(details: Iterable[StepDetail]) -> None:
    """Record steps of another run once more, in the current run; their numbers stay.

    What this context does next belongs to the last of its questions to a model.
    """
    run = current_run()
    if run is None or run.steps is None:
        return
    for detail in details:
        run.steps.repeat(detail)
        if detail.step.kind == "model" and not detail.step.parent:
            _asked.set((run.run_id, detail.step.number))


def enclosing_call(steps: RunSteps) -> int:
    """The number of the innermost open call of that run that this code works for; 0 without one."""
    run_id, numbers = _calls.get()
    if run_id != steps.run_id:
        return 0
    return next((number for number in reversed(numbers) if number in steps.open_calls), 0)


def enclosing_step(steps: RunSteps) -> OpenStep | None:
    """The innermost open call of that run that this code works for; None without one."""
    number = enclosing_call(steps)
    return next((each for each in reversed(steps.steps) if each.number == number), None)


@contextmanager
def call_step(kind: StepKind, name: str, arguments: Mapping[str, Any]) -> Iterator[OpenStep | None]:
    """Bind this block to a step that is no model's, and end the step with it; None as above."""
    step = begin_call_step(kind, name, arguments)
    try:
        yield step
    except BaseException as error:
        if step is not None:
            step.finish("failed", str(error) or type(error).__name__)
        raise
    else:
        if step is not None:
            step.finish("done")


def _loaded(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
