"""Records the steps of runs: what was asked, each attempt, what came back, and what it used.

There is one recorder for all readers; executors report to it. Steps of the last runs are in memory;
``runs.run_recorder`` writes them to the ledger when their run ends. One event loop only.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from time import perf_counter, time
from typing import Any, Final

from pallas.model import Step, StepAttempt, StepDetail, StepKind, StepState, StepUsage, StoredStep
from pallas.safe_text import one_line

from .request_parts import PartCache, RequestPart, RequestParts, shortened
from .ring_store import RingStore
from .trace_context import current_run
from .wire_record import Headers, clean_headers, masked

MAX_BYTES: Final = 32 * 1024 * 1024
MAX_RUNS: Final = 500
MAX_STEPS: Final = 500
"""Most steps of one run that are recorded; the oldest are dropped."""
MAX_ATTEMPTS: Final = 50
MAX_TEXT: Final = 1024 * 1024
"""Most characters of a text in the result of a call that are recorded."""
# fmt: off
_SHOWN: Final = frozenset({
    "anthropic-beta", "anthropic-version", "api-key", "authorization", "content-type", "openai-organization",
    "openai-project", "x-api-key", "x-goog-api-key",
})
# fmt: on
"""The headers that one needs to send a request again."""
_IN_URL: Final = re.compile(r"/models/([^/:?]+):")
"""Where Google's requests name their model."""
_OVERHEAD: Final = 1_000
"""About how many bytes a step takes without its texts."""


class OpenStep:
    """A step from its begin on."""

    __slots__ = ("_began", "_changes", "_run", "_sent", "_value", "headers", "request", "response", "size")

    def __init__(self, run: "RunSteps", value: Step, request: RequestParts | None = None) -> None:
        self._run = run
        self._began = self._sent = perf_counter()
        self._value = value
        self._changes: dict[str, Any] = {}
        self.request = request
        self.response = ""
        self.headers: tuple[tuple[str, str], ...] = ()
        self.size = _OVERHEAD + (request.new if request is not None else 0)

    @property
    def value(self) -> Step:
        """Its current state."""
        if self._changes:  # made when it is read: a step changes more often
            self._value, self._changes = replace(self._value, **self._changes), {}
        return self._value

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self._now("seconds") is None

    @property
    def detail(self) -> StepDetail:
        """The step with its texts."""
        request = self.request.text() if self.request is not None else ""
        return StepDetail(self.value, request, self.response, self.headers)

    def send(self, url: str, headers: Headers, body: bytes) -> None:
        """Record that a request was sent: the first, or one after a failed attempt."""
        attempts = self._now("attempts")
        if len(attempts) == MAX_ATTEMPTS:
            return
        self._sent = perf_counter()
        changed: dict[str, Any] = {"attempts": (*attempts, StepAttempt(time()))}
        if self.request is None:
            self.headers = _shown_headers(tuple(each for each in headers if each[0].lower() in _SHOWN))
            self._fill(request := self._run.split(body))
            named = _IN_URL.search(url)
            name = request.value("model").strip('"') or (named[1] if named is not None else "")
            changed |= {
                "url": one_line(url, 500),
                "name": one_line(name, 200),
                "messages": request.messages,
                "digest": request.digest,
            }
        self._put(**changed)

    def answered(self, status: int) -> None:
        """Record the status of a response."""
        self._attempt({}, status=status)

    def first_token(self) -> None:
        """Note that a piece of the answer arrived; only the first call counts."""
        if self._now("first_token") is None:
            self._put(first_token=perf_counter() - self._began)

    def attempted(self, response: str, usage: StepUsage) -> None:
        """Record the end of an attempt; ``response`` is JSON, not masked yet."""
        self._answer(masked(response))
        self._attempt({"usage": usage}, seconds=perf_counter() - self._sent)

    def arguments(self, arguments: Mapping[str, Any]) -> None:
        """Record the arguments of a call that were not known when it began."""
        self._fill(request := self._run.split_call(self._value.name, arguments))
        self._put(digest=request.digest)

    def content(self, content: Iterable[Mapping[str, Any]], *, is_error: bool = False) -> None:
        """Record the result of a call: blocks of content as in MCP."""
        blocks = [{name: _stored_text(name, each) for name, each in block.items()} for block in content]
        result = {"content": blocks, **({"isError": True} if is_error else {})}
        text = json.dumps(result, ensure_ascii=False, default=str)
        self._answer(masked(text.encode("utf-8", "replace").decode()))

    def retry(self, reason: str, wait: float) -> None:
        """Record that the last attempt failed, and the seconds until the next."""
        attempts = self._now("attempts")
        last = attempts[-1].seconds if attempts else None
        took = perf_counter() - self._sent if last is None else last
        self._attempt({"first_token": None}, seconds=took, reason=one_line(reason, 200), wait=wait)

    def finish(self, state: StepState, fault: str = "") -> None:
        """End it; only the first call counts."""
        if self.is_open:
            seconds = perf_counter() - self._began
            self._run.open_calls.discard(self._value.number)
            self._put(state=state, fault=one_line(masked(fault), 500) if fault else "", seconds=seconds)

    def end(self) -> None:
        """End it as its last attempt ended."""
        attempts = self._now("attempts")
        failed = bool(attempts) and (attempts[-1].status or 0) not in range(200, 300)
        self.finish("failed" if failed else "done")

    def receive(self, detail: StepDetail, parent: int) -> None:
        """Take over what another process recorded, whose texts are masked. An empty text says nothing.

        ``parent`` is the step of this record that caused it.
        """
        if detail.request and self.request is None:
            self.headers = detail.headers
            self._fill(self._run.split(detail.request.encode()))
        if detail.response:
            self._answer(detail.response)
        self._value, self._changes = replace(detail.step, number=self._value.number, parent=parent), {}
        self._run.tell(self)

    def _answer(self, response: str) -> None:
        by = len(response) - len(self.response)
        self.response = response
        self.size += by
        self._run.grow(by)

    def _fill(self, request: RequestParts) -> None:
        self.request = request
        by = request.new or 200
        self.size += by
        self._run.grow(by)

    def _attempt(self, of_step: dict[str, Any], **changed: Any) -> None:
        """Change the last attempt, and ``of_step`` of the step."""
        if attempts := self._now("attempts"):
            last = replace(attempts[-1], **changed)
            self._put(attempts=(*attempts[:-1], last), **of_step)

    def _put(self, **changed: Any) -> None:
        self._changes |= changed
        self._run.tell(self)

    def _now(self, name: str) -> Any:
        return self._changes[name] if name in self._changes else getattr(self._value, name)


class RunSteps:
    """The steps of one run. ``scope`` is the conversation that its messages belong to.

    ``tell`` is called with each step that is new or changed.
    """

    __slots__ = ("_made", "_record", "is_dropped", "open_calls", "run_id", "scope", "steps", "tell")

    def __init__(self, record: "StepRecord", run_id: str, scope: str) -> None:
        self._record = record
        self._made = 0
        self.run_id = run_id
        self.scope = scope
        self.steps: list[OpenStep] = []
        self.open_calls: set[int] = set()
        self.is_dropped = False
        self.tell = _ignore

    def begin(
        self,
        kind: StepKind = "model",
        *,
        name: str = "",
        provider: str = "",
        parent: int = 0,
        call_id: str = "",
        span_id: str = "",
        request: RequestParts | None = None,
    ) -> OpenStep:
        """Record that a step begins."""
        self._made += 1
        value = Step(
            self.run_id,
            self._made,
            kind,
            one_line(name, 200),
            time(),
            provider=one_line(provider, 80),
            digest=request.digest if request is not None else "",
            parent=parent,
            call_id=call_id,
            span_id=span_id,
        )
        step = OpenStep(self, value, request)
        if not self.is_dropped:
            self.steps.append(step)
            if len(self.steps) > MAX_STEPS:
                self.drop_oldest()
            self.grow(step.size)
            self.tell(step)
        return step

    def split(self, body: bytes) -> RequestParts:
        """The parts of a request to a model."""
        return self._record.cache.split(body, self.scope)

    def split_call(self, name: str, arguments: Mapping[str, Any]) -> RequestParts:
        """The parts of a call."""
        body = json.dumps(arguments, ensure_ascii=False, default=str).encode("utf-8", "replace")
        return self._record.cache.split_call(name, body)

    def grow(self, by: int) -> None:
        """Add bytes to the size of the record."""
        if not self.is_dropped:
            self._record.grow(by)

    @property
    def count(self) -> int:
        """The number of steps."""
        return len(self.steps)

    def drop_oldest(self) -> None:
        """Forget its oldest step."""
        oldest = self.steps.pop(0)
        self._record.grow(-oldest.size)
        self.is_dropped = not self.steps

    def stored(self) -> list[StoredStep]:
        """Its steps as the ledger keeps them."""
        return [
            StoredStep(
                step.value,
                step.request.stored() if step.request is not None else (),
                step.response,
                step.headers,
            )
            for step in self.steps
        ]

    def unstored(self, since: float) -> list[RequestPart]:
        """The parts of its requests to be stored; shared ones if they were not stored ``since`` then."""
        found: dict[int, RequestPart] = {}
        for step in self.steps:
            if step.request is not None:
                found |= {id(part): part for part in step.request.unstored(since)}
        return list(found.values())

    def end(self) -> None:
        """Mark the steps that are still open: their run is over."""
        for step in self.steps:
            step.finish("failed", "the run ended before the step did")


class StepRecord(RingStore[RunSteps]):
    """The steps of the last runs: at most ``MAX_RUNS`` runs and ``MAX_BYTES`` together."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_runs: int = MAX_RUNS) -> None:
        super().__init__(max_bytes, max_runs)
        self.cache = PartCache()

    def open(self, run_id: str, scope: str) -> RunSteps:
        """Begin the record of a run of the conversation ``scope``."""
        return self.put(run_id, RunSteps(self, run_id, scope))


_step: ContextVar[OpenStep | None] = ContextVar("pallas_step", default=None)
# Of the run with this id: the last model step in this context, and the calls that it is in, outermost first.
_asked: ContextVar[tuple[str, int]] = ContextVar("pallas_asked", default=("", 0))
_calls: ContextVar[tuple[str, tuple[int, ...]]] = ContextVar("pallas_calls", default=("", ()))


def current_step() -> OpenStep | None:
    """The model step that this code works for; None outside of one."""
    step = _step.get()
    return step if step is not None and step.is_open else None


@contextmanager
def model_step(provider: str) -> Iterator[OpenStep | None]:
    """Bind this block to a model step of the current run, and end the step with it.

    Yields None outside of a run, or if steps are not recorded.
    """
    run = current_run()
    if run is None or run.steps is None:
        yield None
        return
    step = run.steps.begin(provider=provider, parent=enclosing_call(run.steps))
    token = _step.set(step)
    _asked.set((run.run_id, step.value.number))
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
    kind: StepKind, name: str, arguments: Mapping[str, Any] | None, *, call_id: str = "", span_id: str = ""
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
        request=run.steps.split_call(name, arguments or {}),
    )
    number = step.value.number
    run.steps.open_calls.add(number)
    in_run, outer = _calls.get()
    around = (each for each in outer if in_run == run.run_id and each in run.steps.open_calls)
    _calls.set((run.run_id, (*around, number)))
    return step


def enclosing_call(steps: RunSteps) -> int:
    """The number of the innermost open call of that run that this code works for; 0 without one."""
    run_id, numbers = _calls.get()
    if run_id != steps.run_id:
        return 0
    return next((number for number in reversed(numbers) if number in steps.open_calls), 0)


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


def _stored_text(name: str, value: Any) -> Any:
    """A value of a block of content: texts are cut, pictures are replaced by their length and digest."""
    if name == "text":
        left = len(value) - MAX_TEXT
        return f"{value[:MAX_TEXT]}[{left} more characters]" if left > 0 else value
    if isinstance(value, Mapping):  # the resource of a block
        return {key: _stored_text(key, each) for key, each in value.items()}
    return shortened(value) if isinstance(value, str) else value


@lru_cache(maxsize=256)
def _shown_headers(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return clean_headers(headers)


def _ignore(step: OpenStep) -> None:
    pass
