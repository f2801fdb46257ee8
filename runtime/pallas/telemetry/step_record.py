"""Records the steps of runs: what was asked, each attempt, what came back, and what it used.

There is one recorder for all readers; executors report to it. Steps of the last runs are in memory;
``runs.run_recorder`` writes them to the ledger when their run ends. One event loop only.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from time import perf_counter, time
from typing import Any, Final

from pallas.model import Step, StepAttempt, StepDetail, StepKind, StepState, StepUsage, StoredStep
from pallas.model.redaction import known_spellings
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
MAX_UNSETTLED: Final = 64
"""Most steps whose texts are not cleaned yet."""
MAX_UNSETTLED_BYTES: Final = 256 * 1024

type ReadRequest = Callable[[], tuple[str, Headers, bytes]]
"""Returns the URL, the headers and the body of a request."""
type ReadAnswer = Callable[[], tuple[str, StepUsage]]
"""Returns an answer as JSON text, not masked yet, and what it used."""


class _Attempt:
    """A ``StepAttempt`` that is not over."""

    __slots__ = ("at", "reason", "seconds", "status", "wait")

    def __init__(self) -> None:
        self.at = time()
        self.status: int | None = None
        self.seconds: float | None = None
        self.reason = ""
        self.wait = 0.0

    @property
    def value(self) -> StepAttempt:
        return StepAttempt(self.at, self.status, self.seconds, self.reason, self.wait)


class OpenStep:
    """A step from its begin on.

    The texts of a model's step are split and cleaned when they are read, together with those of other steps:
    one at a time, between other work, that takes five times as long. ``redaction.known_spellings`` of the
    time when they arrived are kept for it.
    """

    __slots__ = (
        "_attempts", "_began", "_changes", "_headers", "_known", "_read_answer", "_read_request", "_request",
        "_response", "_run", "_sent", "_value", "is_open", "number", "size",
    )  # fmt: skip

    def __init__(self, run: "RunSteps", value: Step, request: RequestParts | None = None) -> None:
        self._run = run
        self._began = self._sent = perf_counter()
        self._value = value
        self._changes: dict[str, Any] = {}
        self._attempts: list[_Attempt] = []
        self._request = request
        self._response = ""
        self._headers: tuple[tuple[str, str], ...] = ()
        self._known: tuple[str, ...] = ()
        self._read_request: ReadRequest | None = None
        self._read_answer: ReadAnswer | None = None
        self.number = value.number
        self.is_open = True
        self.size = _OVERHEAD + (request.new if request is not None else 0)

    @property
    def value(self) -> Step:
        """Its current state."""
        self.settle()
        if self._changes:  # made when it is read: a step changes more often
            if self._attempts:
                self._changes["attempts"] = tuple(each.value for each in self._attempts)
            self._value, self._changes = replace(self._value, **self._changes), {}
        return self._value

    @property
    def request(self) -> RequestParts | None:
        """What was sent; None if nothing was."""
        self.settle()
        return self._request

    @property
    def response(self) -> str:
        """What came back, as JSON text; empty without it."""
        self.settle()
        return self._response

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers that one needs to send the request again."""
        self.settle()
        return self._headers

    @property
    def detail(self) -> StepDetail:
        """The step with its texts."""
        request = self.request.text() if self.request is not None else ""
        return StepDetail(self.value, request, self._response, self._headers)

    def send(self, size: int, read: "ReadRequest") -> None:
        """Record that a request of ``size`` bytes was sent: the first, or one after a failed attempt."""
        if len(self._attempts) == MAX_ATTEMPTS:
            return
        self._sent = perf_counter()
        self._attempts.append(_Attempt())
        if self._request is None and self._read_request is None:
            self._read_request = read
            self._arrived(size)
        self._put(attempts=())

    def answered(self, status: int) -> None:
        """Record the status of a response."""
        if self._attempts:
            self._attempts[-1].status = status
            self._put(attempts=())

    def first_token(self) -> None:
        """Note that a piece of the answer arrived; only the first call counts."""
        if self._changes.get("first_token", self._value.first_token) is None:
            self._put(first_token=perf_counter() - self._began)

    def attempted(self, size: int, read: "ReadAnswer") -> None:
        """Record the end of an attempt, and its answer of ``size`` bytes."""
        self._read_answer = read
        self._arrived(size)
        if self._attempts:
            self._attempts[-1].seconds = perf_counter() - self._sent
        self._put(attempts=())

    def settle(self) -> None:
        """Split and clean the texts that arrived."""
        if (read := self._read_request) is not None:
            self._read_request = None
            url, headers, body = read()
            request = self._run.split(body, self._known)
            named = _IN_URL.search(url)
            name = request.value("model").strip('"') or (named[1] if named is not None else "")
            self._headers = _shown_headers(tuple(each for each in headers if each[0].lower() in _SHOWN))
            self._changes |= {
                "url": one_line(url, 500),
                "name": one_line(name, 200),
                "messages": request.messages,
                "digest": request.digest,
            }
            self._fill(request, len(body))
        if (read_answer := self._read_answer) is not None:
            self._read_answer = None
            response, usage = read_answer()
            self._changes["usage"] = usage
            self._answer(masked(response, self._known))

    def arguments(self, arguments: Mapping[str, Any]) -> None:
        """Record the arguments of a call that were not known when it began."""
        request = self._run.split_call(self._value.name, arguments)
        self._fill(request)
        self._put(digest=request.digest)

    def content(self, content: Iterable[Mapping[str, Any]], *, is_error: bool = False) -> None:
        """Record the result of a call: blocks of content as in MCP."""
        blocks = [{name: _stored_text(name, each) for name, each in block.items()} for block in content]
        result = {"content": blocks, **({"isError": True} if is_error else {})}
        text = json.dumps(result, ensure_ascii=False, default=str)
        self._answer(masked(text.encode("utf-8", "replace").decode()))

    def retry(self, reason: str, wait: float) -> None:
        """Record that the last attempt failed, and the seconds until the next."""
        if self._attempts:
            last = self._attempts[-1]
            if last.seconds is None:
                last.seconds = perf_counter() - self._sent
            last.reason, last.wait = one_line(reason, 200), wait
            self._put(attempts=(), first_token=None)

    def finish(self, state: StepState, fault: str = "") -> None:
        """End it; only the first call counts."""
        if self.is_open:
            self.is_open = False
            seconds = perf_counter() - self._began
            self._run.open_calls.discard(self.number)
            self._put(state=state, fault=one_line(masked(fault), 500) if fault else "", seconds=seconds)

    def end(self) -> None:
        """End it as its last attempt ended."""
        failed = bool(self._attempts) and (self._attempts[-1].status or 0) not in range(200, 300)
        self.finish("failed" if failed else "done")

    def receive(self, detail: StepDetail, parent: int) -> None:
        """Take over what another process recorded, whose texts are masked. An empty text says nothing.

        ``parent`` is the step of this record that caused it.
        """
        if detail.request and self._request is None:
            self._headers = detail.headers
            self._fill(self._run.split(detail.request.encode()))
        if detail.response:
            self._answer(detail.response)
        self._value, self._changes = replace(detail.step, number=self.number, parent=parent), {}
        self.is_open = detail.step.seconds is None
        self._run.tell(self)

    def _arrived(self, size: int) -> None:
        self._known = known_spellings()
        self._grow(size)
        self._run.settle_later(self, size)

    def _answer(self, response: str) -> None:
        by = len(response) - len(self._response)
        self._response = response
        self._grow(by)

    def _fill(self, request: RequestParts, arrived: int = 0) -> None:
        self._request = request
        self._grow((request.new or 200) - arrived)

    def _grow(self, by: int) -> None:
        self.size += by
        self._run.grow(by)

    def _put(self, **changed: Any) -> None:
        """Change fields of the value; ``attempts`` are those of ``_attempts``."""
        self._changes |= changed
        self._run.tell(self)


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

    def split(self, body: bytes, known: tuple[str, ...] = ()) -> RequestParts:
        """The parts of a request to a model; ``known`` as in ``redaction.redact_text``."""
        return self._record.cache.split(body, self.scope, known)

    def split_call(self, name: str, arguments: Mapping[str, Any]) -> RequestParts:
        """The parts of a call."""
        body = json.dumps(arguments, ensure_ascii=False, default=str).encode("utf-8", "replace")
        return self._record.cache.split_call(name, body)

    def settle_later(self, step: OpenStep, size: int) -> None:
        """Clean ``size`` bytes of texts of a step together with those of others."""
        self._record.settle_later(step, size)

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

    def unstored(self, since: float, taken: set[RequestPart]) -> list[RequestPart]:
        """The parts of its requests to be stored, as ``RequestParts.unstored`` gives them, each once."""
        found: dict[RequestPart, None] = {}
        for step in self.steps:
            if step.request is not None:
                found |= dict.fromkeys(step.request.unstored(since, taken))
        return list(found)

    def end(self) -> None:
        """Mark the steps that are still open: their run is over."""
        for step in self.steps:
            step.finish("failed", "the run ended before the step did")


class StepRecord(RingStore[RunSteps]):
    """The steps of the last runs: at most ``MAX_RUNS`` runs and ``MAX_BYTES`` together."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_runs: int = MAX_RUNS) -> None:
        super().__init__(max_bytes, max_runs)
        self.cache = PartCache()
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
    number = step.number
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
