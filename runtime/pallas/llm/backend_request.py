"""One question on its way through the backends, until one of them answers (HC-27, HC-28)."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from pallas.config.kinds import LlmRouting
from pallas.limits.limit_reached import LimitReached
from pallas.model import BackendChosen, Event, Fault, FaultType, Params
from pallas.safe_text import one_line

from .backend import Backend, Busy, Clock, Sleep
from .backend_selection import Selection
from .provider_port import UNREADABLE, ModelAnswer, Provider
from .question import CompletionRequest

log = logging.getLogger(__name__)

JITTER: Final = 0.25
"""The random part of a back-off, as a share of it, up or down."""
SLOW: Final = 5.0
"""The least seconds a backend gets before a caller's short deadline counts as its failure."""
_LAST: Final = 0.5
_MAX_TOLD: Final = 5
_TOO_MANY: Final = 429

type Ready = Callable[[Backend], Awaitable[Provider]]


class _AllFailed(Exception):
    """Every backend was asked, and at least one may still answer later."""


class BackendRequest:
    """One question. ``emit`` receives an event for each attempt; ``deadline`` is in the time of ``clock``."""

    def __init__(
        self,
        *,
        actor: str,
        run_id: str,
        run_agent: str,
        emit: Callable[[Event], object],
        selection: Selection,
        routing: LlmRouting,
        provider: Ready,
        deadline: float,
        clock: Clock,
        sleep: Sleep,
    ) -> None:
        self._actor, self._run_id, self._run_agent = actor, run_id, run_agent
        self._emit = emit
        self._selection = selection
        self._routing = routing
        self._provider = provider
        self._deadline = deadline
        self._clock, self._sleep = clock, sleep
        self._attempts = 0
        self._faults: dict[str, Fault] = {}
        self._last: Fault | None = None
        self._able: tuple[Backend, ...] = ()

    async def answer(
        self, model: str, candidates: tuple[Backend, ...], question: CompletionRequest, params: Params
    ) -> tuple[Backend, ModelAnswer]:
        """Return the backend that answered, and its answer.

        Raises Fault: the last one, together with those of the other backends.
        """
        tokens = question.tokens
        able = self._able = tuple(each for each in candidates if each.bucket.holds(tokens))
        if not able:
            raise _too_large(tokens, candidates)
        retrying = AsyncRetrying(
            sleep=self._sleep,
            stop=self._should_stop,
            wait=self._back_off,
            retry=retry_if_exception_type(_AllFailed),
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    number = attempt.retry_state.attempt_number
                    return await self._round(number, model, able, question, params)
        except _AllFailed:
            raise self._told() from self._last
        raise AssertionError("a round neither answered nor failed")

    async def _round(
        self, number: int, model: str, able: tuple[Backend, ...], question: CompletionRequest, params: Params
    ) -> tuple[Backend, ModelAnswer]:
        """Ask one backend after the other, without pauses; skips those that asked not to be called."""
        await self._until_open(able)
        line = self._selection.order([each for each in able if not each.closed_for], self._routing.strategy)
        failed: Backend | None = None
        for place, backend in enumerate(line):
            why = self._why(number, place, backend, failed)
            try:
                return backend, await self._ask(backend, model, question, params, why, failed)
            except Fault as fault:
                self._last = self._faults[backend.id] = fault
                if not _passing(fault):
                    raise self._told() from fault
                failed = backend
        raise _AllFailed

    async def _ask(
        self,
        backend: Backend,
        model: str,
        question: CompletionRequest,
        params: Params,
        why: str,
        failed: Backend | None,
    ) -> ModelAnswer:
        within = min(self._left, backend.config.timeout)
        attempt = BackendAttempt(self, backend, model, self._attempts + 1, why, failed)
        provider: Provider = await self._provider(backend)
        try:
            async with backend.turn(question.tokens, within) as turn:
                self._attempts += 1
                attempt.sent(turn.waited)
                try:
                    # The deadline is the caller's, which is cancelled then: the backend did not fail.
                    limit = backend.config.timeout
                    async with asyncio.timeout(limit if limit < self._left else None) as scope:
                        answer = await provider.ask(model, question, params)
                except TimeoutError:
                    if not scope.expired():
                        raise
                    raise _late(backend) from None
                except Fault as fault:
                    if fault.type is not FaultType.TIMEOUT:  # otherwise it may have worked on it
                        turn.used = 0
                    raise
                if answer.tokens_in is not None or answer.tokens_out is not None:
                    turn.used = (answer.tokens_in or 0) + (answer.tokens_out or 0)
        except Fault as fault:
            fault.data = {"providerId": backend.id, **fault.data}
            attempt.ended(outcome_of(fault))
            if _passing(fault) and not isinstance(fault, Busy):
                backend.failed(one_line(fault.message, 200), _retry_after(fault))
            raise
        except BaseException as error:
            since = attempt.since
            if since is not None and self._left < _LAST and not isinstance(error, Exception):
                # Otherwise a backend that hangs for longer than handlers have is asked first again and again.
                if self._clock() - since >= SLOW:
                    backend.failed("it did not answer in the time that a handler had")
                attempt.ended("timeout")
            else:
                attempt.ended("failed" if isinstance(error, Exception) else "cancelled")
            raise
        backend.answered()
        attempt.ended("ok", answer.tokens_in, answer.tokens_out)
        return answer

    async def _until_open(self, able: tuple[Backend, ...]) -> None:
        """Wait while all of them have asked not to be called for some time."""
        while wait := min(each.closed_for for each in able):  # Others may have failed in between.
            if wait > self._left:
                soonest = min(able, key=lambda each: each.closed_for)
                raise Fault(
                    FaultType.UPSTREAM,
                    f"backend {soonest.id} takes no question for {wait:.0f} s, which is too long to wait: "
                    f"{soonest.why}",
                    retryable=True,
                    data={"providerId": soonest.id, "retry_after": round(wait, 1)},
                )
            await self._sleep(wait)

    @property
    def _left(self) -> float:
        return self._deadline - self._clock()

    def _why(self, number: int, place: int, backend: Backend, failed: Backend | None) -> str:
        if failed is not None:
            return f"{failed.id} failed: {one_line(self._faults[failed.id].message, 160)}"
        again = f", round {number}" if number > 1 else ""
        if backend.failing:
            return f"all of them failed just now{again}"
        return {
            "failover": "first by priority",
            "round-robin": "next in turn",
            "least-loaded": f"least loaded, {backend.active} of {backend.config.max_concurrent}",
        }[self._routing.strategy] + again

    def _back_off(self, state: RetryCallState) -> float:
        """Return the back-off: doubled each time, with jitter, at most ``retry_max_delay``."""
        base, most = self._routing.retry_base_delay, self._routing.retry_max_delay
        wait = min(most, base * 2.0 ** min(state.attempt_number - 1, 32))
        return min(most, wait * random.uniform(1 - JITTER, 1 + JITTER))

    def _should_stop(self, state: RetryCallState) -> bool:
        if state.attempt_number > self._routing.retries:
            return True
        if not any(fault.retryable for fault in self._faults.values()):
            return True  # No other backend will answer differently.
        soonest = min(each.closed_for for each in self._able)
        return max(state.upcoming_sleep, soonest) >= self._left

    def _told(self) -> Fault:
        """Return the last fault, with those of the other backends."""
        last = self._last
        assert last is not None
        last_id = last.data.get("providerId")
        others = [(name, fault) for name, fault in self._faults.items() if name != last_id]
        if not others:
            return last
        before = "; ".join(f"{name}: {one_line(fault.message, 200)}" for name, fault in others[:_MAX_TOLD])
        return type(last)(
            last.type,
            f"{last.message}; before it {before}",
            retryable=last.retryable,
            code=last.code,
            data={**last.data, "tried": [*(name for name, _ in others), last_id]},
        )

    def tell(self, event: dict[str, Any]) -> None:
        """Emit an event of this question."""
        self._emit(BackendChosen(run_id=self._run_id, agent=self._run_agent, actor=self._actor, **event))

    @property
    def actor(self) -> str:
        """The agent that asks."""
        return self._actor

    @property
    def clock(self) -> Clock:
        """The clock of its deadline."""
        return self._clock


class BackendAttempt:
    """Emits the events of one attempt: its start and its end."""

    def __init__(
        self,
        asking: BackendRequest,
        backend: Backend,
        model: str,
        attempt: int,
        why: str,
        failed: Backend | None,
    ) -> None:
        self._asking = asking
        self._event = {
            "model": one_line(model, 100),
            "backend": backend.id,
            "attempt": attempt,
            "why": why,
            "instead": failed.id if failed is not None else "",
        }
        self._began = asking.clock()
        self.since: float | None = None
        """The time at which it was sent; None while it waits for its turn."""

    def sent(self, waited: float) -> None:
        """Record that it is sent now, after ``waited`` seconds for its turn."""
        self._began = self.since = self._asking.clock()
        if self._event["instead"]:
            actor, backend, why = self._asking.actor, self._event["backend"], self._event["why"]
            log.warning("%s: asks backend %s: %s", actor, backend, why, extra={"agent": actor})
        self._asking.tell({**self._event, "seconds": waited})

    def ended(self, outcome: str, tokens_in: int | None = None, tokens_out: int | None = None) -> None:
        """Record its end."""
        self._asking.tell(
            {
                **self._event,
                "outcome": outcome,
                "seconds": self._asking.clock() - self._began,
                "tokens_in": tokens_in,
                "tokens_out": tokens_out,
            }
        )


def outcome_of(fault: Fault) -> str:
    """Return how an attempt ended, in one of a few words (a label of the metrics)."""
    if isinstance(fault, Busy):
        return "busy"
    if fault.type is FaultType.TIMEOUT:
        return "timeout"
    if fault.type is FaultType.TRANSPORT:
        return "unreachable"
    if fault.type in (FaultType.AUTH, FaultType.CONFIG) or not _passing(fault):
        return "refused"
    return "limited" if fault.data.get("status") == _TOO_MANY else "failed"


def _passing(fault: Fault) -> bool:
    """Return whether another backend may do better: the failure is not about the question itself."""
    if isinstance(fault, LimitReached):  # holds for all of them
        return False
    return fault.retryable or fault.data.get(UNREADABLE) is True


def _retry_after(fault: Fault) -> float:
    retry_after = fault.data.get("retry_after", 0)
    return max(0.0, float(retry_after)) if isinstance(retry_after, int | float) else 0.0


def _late(backend: Backend) -> Fault:
    return Fault(
        FaultType.TIMEOUT,
        f"backend {backend.id} did not answer in time; ask for less, or raise its timeout",
        data={"providerId": backend.id},
    )


def _too_large(tokens: int, candidates: tuple[Backend, ...]) -> Fault:
    largest = max(candidates, key=lambda each: each.bucket.capacity)
    return Fault(
        FaultType.CONFIG,
        f"the question has about {tokens:,} tokens, and backend {largest.id} takes at most "
        f"{largest.bucket.capacity:,} a minute; shorten its messages, or raise rate_limit_tpm",
        data={"providerId": largest.id, "limit": largest.bucket.capacity, "size": tokens},
    )
