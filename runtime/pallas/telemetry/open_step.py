"""A step of a run while it changes. Executors report to it; ``step_record`` keeps it.

The texts of a model's step are split and cleaned when they are read, together with those of other steps: one
at a time, between other work, that takes three to five times as long.
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from time import perf_counter, time
from typing import Any, Final, Literal, Protocol

from pallas.model import Cost, Image, Step, StepAttempt, StepDetail, StepState, StepUsage
from pallas.model.long_strings import MAX_STRING, MAX_TEXT, lacking_line, left_out, shortened
from pallas.model.redaction import Spellings, known_spellings, redact_head, redact_text, redact_url
from pallas.safe_text import one_line

from .request_parts import RequestParts
from .wire_record import Headers, clean_headers, headers_again, masked

log = logging.getLogger(__name__)

MAX_ATTEMPTS: Final = 50
MAX_PICTURES: Final = 16 * 1024 * 1024
"""Most characters of the pictures of a call that are kept."""
# fmt: off
_SHOWN: Final = frozenset({
    "anthropic-beta", "anthropic-version", "api-key", "authorization", "content-type", "openai-organization",
    "openai-project", "x-api-key", "x-goog-api-key",
})
# fmt: on
"""The headers that one needs to send a request again."""
_IN_URL: Final = re.compile(r"/models/([^/:?]+):")
"""Where Google's requests name their model."""
_UNREADABLE: Final = '"[this could not be read]"'
_OVERHEAD: Final = 1_000
"""About how many bytes a step takes without its texts."""

type ReadRequest = Callable[[], tuple[str, Headers, bytes]]
"""Returns the URL, the headers and the body of a request."""
type ReadAnswer = Callable[[], str]
"""Returns an answer as JSON text, not masked yet."""
_NO_USAGE: Final = StepUsage()


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


class StepRun(Protocol):
    """The run of a step, as the step sees it."""

    run_id: str
    open_calls: set[int]
    tell: Callable[["OpenStep"], None]

    @property
    def keeps_pictures(self) -> bool:
        """Whether nothing else keeps the pictures of its calls."""
        ...

    def split(self, body: bytes, known: Spellings | None = None) -> RequestParts:
        """The parts of a request to a model; ``known`` as in ``redaction.redact_text``."""
        ...

    def split_call(self, name: str, arguments: Mapping[str, Any]) -> RequestParts:
        """The parts of a call."""
        ...

    def clean(self, text: str, known: Spellings | None = None, *, cut: bool = False) -> str:
        """A JSON text that came back, masked; ``known`` and ``cut`` as in ``redaction.redact_text``."""
        ...

    def settle_later(self, step: "OpenStep", size: int) -> None:
        """Clean ``size`` bytes of texts of a step together with those of others."""
        ...

    def grow(self, by: int) -> None:
        """Add bytes to the size of the record."""
        ...

    def price_of(self, step: Step, usage: StepUsage) -> int | None:
        """What an answer to a model's step cost, in nano-US-dollars; None if it is not known."""
        ...

    def expect_price(self, step: Step) -> None:
        """Prepare for ``price_of``. Returns at once."""
        ...

    def charge(self, model: str, cost: Cost) -> None:
        """Add to what the run costs."""
        ...


class OpenStep:
    """A step from its begin on."""

    __slots__ = (
        "_answer", "_asked", "_attempts", "_began", "_changes", "_headers", "_request", "_response", "_run",
        "_sent", "_value", "_waiting", "is_kept", "is_open", "number", "pictures", "size", "written_as",
    )  # fmt: skip

    def __init__(self, run: StepRun, value: Step, request: RequestParts | None = None) -> None:
        self._run = run
        self._began = self._sent = perf_counter()
        self._value = value
        self._changes: dict[str, Any] = {}
        self._attempts: list[_Attempt] = []
        self._request = request
        self._response = ""
        self._headers: tuple[tuple[str, str], ...] = ()
        # Texts that are not cleaned yet, with the secrets of the time when they arrived, and their bytes.
        self._asked: tuple[ReadRequest, Spellings] | None = None
        self._answer: tuple[ReadAnswer, Spellings, bool] | None = None
        self._waiting = 0
        self.is_kept = True
        self.number = value.number
        # Its state in the ledger; empty before it is there.
        self.written_as: StepState | Literal[""] = ""
        self.is_open = True
        # Pictures in the result of a call that only their digest is recorded of, where no thread has them.
        self.pictures: tuple[Image, ...] = ()
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
    def outline(self) -> Step:
        """Its current state without what is read from its texts, which takes time."""
        attempts = tuple(each.value for each in self._attempts)
        return replace(self._current, attempts=attempts) if attempts else self._current

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
        lacks = tuple(map(lacking_line, left_out(request).values()))
        return StepDetail(self.value, request, self._response, self._headers, lacks)

    def send(self, size: int, read: ReadRequest, url: str = "") -> None:
        """Record that a request of ``size`` bytes was sent to ``url``: the first, or one after a failed
        attempt.
        """
        if len(self._attempts) == MAX_ATTEMPTS:
            return
        if url:
            self._changes["url"] = one_line(redact_url(url), 500)
            self._run.expect_price(self._current)
        self._sent = perf_counter()
        self._attempts.append(_Attempt())
        if self._request is None and self._asked is None:
            self._asked = read, known_spellings()
            self._wait(size)
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

    def attempted(
        self, size: int, read: ReadAnswer, usage: StepUsage = _NO_USAGE, *, cut: bool = False
    ) -> None:
        """Record the end of an attempt, and its answer of ``size`` bytes with what it used.

        ``cut`` if the answer goes on behind what is read, or broke off.
        """
        self._answer = read, known_spellings(), cut
        self._wait(size)
        if self._attempts:
            self._attempts[-1].seconds = perf_counter() - self._sent
        self._put(attempts=(), usage=usage)
        if self._attempts and (self._attempts[-1].status or 0) in range(200, 300):
            self._pay(usage)

    def _pay(self, usage: StepUsage) -> None:
        """Add what an answer cost: each attempt that was answered is paid for."""
        step = self._current
        price = self._run.price_of(step, usage)
        paid = Cost(price, 1 if price is None else 0)
        total = Cost.of(step) + paid
        self._put(cost=total.cost, unpriced=total.unpriced)
        self._run.charge(step.name, paid)

    @property
    def _current(self) -> Step:
        """Its value without the texts that wait, which take time."""
        changes = {name: each for name, each in self._changes.items() if name != "attempts"}
        return replace(self._value, **changes)

    def settle(self) -> None:
        """Split and clean the texts that arrived."""
        if self._waiting:
            waited, self._waiting = self._waiting, 0
            self._grow(-waited)
        if self._asked is not None:
            (read, known), self._asked = self._asked, None
            self._settle_request(read, known)
        if self._answer is not None:
            (read_answer, known, is_cut), self._answer = self._answer, None
            try:
                response = read_answer()
            except Exception:  # other runs wait for this, which have nothing to do with it
                log.exception(
                    "the answer of step %d of run %s cannot be recorded", self.number, self._run.run_id
                )
                response = _UNREADABLE
            self._respond(self._run.clean(response, known, cut=is_cut))

    def _settle_request(self, read: ReadRequest, known: Spellings) -> None:
        url, headers, body = read()
        try:
            request = self._run.split(body, known)
        except Exception:
            log.exception(
                "the request of step %d of run %s cannot be recorded", self.number, self._run.run_id
            )
            request = self._run.split(_UNREADABLE.encode())
        named = _IN_URL.search(url)
        name = request.value("model").strip('"') or (named[1] if named is not None else "")
        self._headers = _shown_headers(tuple(each for each in headers if each[0].lower() in _SHOWN))
        self._changes |= {
            "url": self._current.url or one_line(redact_url(url), 500),
            "name": one_line(name, 200),
            "messages": request.messages,
            "digest": request.digest,
        }
        self._fill(request)

    def arguments(self, arguments: Mapping[str, Any]) -> None:
        """Record the arguments of a call that were not known when it began."""
        request = self._run.split_call(self._value.name, arguments)
        self._fill(request)
        self._put(digest=request.digest)

    def content(
        self, content: Iterable[Mapping[str, Any]], *, is_error: bool = False, structured: Any = None
    ) -> None:
        """Record the result of a call: blocks of content as in MCP, and structured content if it has some."""
        given = list(content)
        self.keep_pictures(
            Image(block["data"], str(block.get("mimeType", "image/png")))
            for block in given
            if block.get("type") == "image" and isinstance(block.get("data"), str)
        )
        blocks = [{name: _stored_text(name, each) for name, each in block.items()} for block in given]
        result: dict[str, Any] = {"content": blocks, **({"isError": True} if is_error else {})}
        if structured is not None:
            left = len(json.dumps(structured, default=str))
            if left <= MAX_TEXT:
                result["structuredContent"] = structured
            else:
                result["_meta"] = {"pallas/cut": f"structuredContent: {left} characters of JSON"}
        text = json.dumps(result, ensure_ascii=False, default=str)
        self._respond(self._run.clean(text.encode("utf-8", "replace").decode()))

    def keep_pictures(self, pictures: Iterable[Image]) -> None:
        """Keep pictures of its result that only their digest is recorded of, if nothing else keeps them."""
        if not (self._run.keeps_pictures and self.is_kept):
            return
        left = MAX_PICTURES - sum(len(each.data) for each in self.pictures)
        for picture in pictures:
            if MAX_STRING < len(picture.data) <= left:
                left -= len(picture.data)
                self.pictures = (*self.pictures, picture)
                self._grow(len(picture.data))

    def take_pictures(self) -> tuple[Image, ...]:
        """Its pictures, which another process keeps from now on."""
        taken, self.pictures = self.pictures, ()
        self._grow(-sum(len(each.data) for each in taken))
        return taken

    def retry(self, reason: str, wait: float) -> None:
        """Record that the last attempt failed, and the seconds until the next."""
        if self._attempts:
            last = self._attempts[-1]
            if last.seconds is None:
                last.seconds = perf_counter() - self._sent
            last.reason, last.wait = one_line(redact_text(reason), 200), wait
            self._put(attempts=(), first_token=None)

    def finish(self, state: StepState, fault: str = "") -> None:
        """End it; only the first call counts. In a task that is being cancelled it ends as ``cancelled``."""
        if self.is_open:
            if is_cancelled():
                state, fault = "cancelled", ""
            self.is_open = False
            seconds = perf_counter() - self._began
            self._run.open_calls.discard(self.number)
            self._put(state=state, fault=one_line(masked(fault), 500) if fault else "", seconds=seconds)

    def end(self) -> None:
        """End it as its last attempt ended."""
        failed = bool(self._attempts) and (self._attempts[-1].status or 0) not in range(200, 300)
        self.finish("failed" if failed else "done")

    def receive(self, detail: StepDetail, parent: int) -> None:
        """Take over what another process recorded. An empty text says nothing.

        Its texts are masked and cut; here they are masked again, with all that is known here.

        ``parent`` is the step of this record that caused it.
        """
        if detail.request and self._request is None:
            self._headers = headers_again(detail.headers)
            self._fill(self._run.split(detail.request.encode()))
        if detail.response:
            self._respond(self._run.clean(detail.response, cut=True))
        before = Cost.of(self._value)
        step = replace(_masked_again(detail.step), number=self.number, parent=parent)
        if step.unpriced and (price := self._run.price_of(step, step.usage)) is not None:
            total = Cost(step.cost, step.unpriced - 1) + Cost(price)
            step = replace(step, cost=total.cost, unpriced=total.unpriced)
        self._value, self._changes = step, {}
        self._run.charge(step.name, Cost.of(step).since(before))
        self.is_open = detail.step.seconds is None
        self._run.tell(self)

    def drop(self) -> None:
        """Let go of its texts that wait: it is no part of the record any more."""
        self.is_kept = False
        self.pictures = ()
        self._asked = self._answer = None

    def _wait(self, size: int) -> None:
        self._waiting += size
        self._grow(size)
        if self.is_kept:
            self._run.settle_later(self, size)

    def _respond(self, response: str) -> None:
        by = len(response) - len(self._response)
        self._response = response
        self._grow(by)

    def _fill(self, request: RequestParts) -> None:
        self._request = request
        self._grow(request.new or 200)

    def _grow(self, by: int) -> None:
        if self.is_kept:
            self.size += by
            self._run.grow(by)

    def _put(self, **changed: Any) -> None:
        """Change fields of the value; ``attempts`` are those of ``_attempts``."""
        self._changes |= changed
        self._run.tell(self)


def is_cancelled() -> bool:
    """Whether this code runs in a task that is being cancelled, so that what it has is no end.

    fast-agent makes an answer of a cancellation, in the question to a model and in the call of a tool.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return False
    return task is not None and task.cancelling() > 0


def _masked_again(step: Step) -> Step:
    attempts = tuple(replace(each, reason=redact_text(each.reason)) for each in step.attempts)
    return replace(
        step,
        name=redact_text(step.name),
        tool_use_id=redact_text(step.tool_use_id),
        url=redact_url(step.url),
        fault=redact_text(step.fault, cut=True),
        attempts=attempts,
    )


def _stored_text(name: str, value: Any) -> Any:
    """A value of a block of content: texts are cut, pictures are replaced by their length and digest."""
    if name == "text":
        left = len(value) - MAX_TEXT
        return f"{redact_head(value, MAX_TEXT)}[{left} more characters]" if left > 0 else value
    if isinstance(value, Mapping):  # the resource of a block
        return {key: _stored_text(key, each) for key, each in value.items()}
    return shortened(value) if isinstance(value, str) else value


@lru_cache(maxsize=256)
def _shown_headers(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return clean_headers(headers)
