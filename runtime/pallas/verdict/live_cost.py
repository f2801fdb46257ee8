"""What asking models costs: before they are asked, and how it is kept below a limit."""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import dropwhile
from typing import Final

from pallas.executors.replay.replay import REFUSED
from pallas.model import (
    Cost,
    Event,
    Fault,
    FaultType,
    ModelCalls,
    Recording,
    Step,
    StepChanged,
    StepDetail,
    StepUsage,
)
from pallas.model.money import usd_text
from pallas.prices.price_book import PriceBook
from pallas.recordings.recorded_steps import StepRequest

from .affected_units import steps_in_order

_CHARACTERS: Final = 4
"""Characters of a token, where no provider counted."""
_ANSWER: Final = 1_000
"""Tokens of an answer of which nothing is known."""


async def price_today(prices: PriceBook, step: Step, usage: StepUsage) -> int | None:
    """The price of a request as that of this step, in nano-US-dollars; None if it is not known."""
    await prices.ready(step.provider, step.name, step.url)
    return prices.price(step.provider, step.name, usage, url=step.url)


async def estimate_of(
    recording: Recording,
    since: tuple[str, int],
    running: Collection[str],
    now: Mapping[str, Step],
    prices: PriceBook,
) -> ModelCalls:
    """What the recorded requests of ``running`` agents to models would cost from a step on.

    ``since`` is the id of its run and its number. ``now`` are requests that agents make with the files as
    they are: those say which model they ask.
    """
    steps = dropwhile(lambda each: (each[0].id, each[1].step.number) != since, steps_in_order(recording))
    found: list[ModelCalls] = []
    for run, each in steps:
        if each.step.kind == "model" and run.agent in running:
            price = await price_today(prices, now.get(run.agent, each.step), _usage(each))
            found.append(ModelCalls(1, price, int(price is None)))
    return ModelCalls.sum(found) or ModelCalls()


class LiveBudget:
    """Lets models be asked as long as that costs no more than ``most``, in nano-US-dollars.

    A request whose price is not known is refused. Belongs to one event loop.
    """

    def __init__(self, prices: PriceBook, most: int, recordings: Iterable[Recording]) -> None:
        self._prices = prices
        self._most = most
        self._spent = 0
        self._reserved: dict[tuple[str, int], int] = {}
        self._settled: set[tuple[str, int]] = set()
        self._held = 0  # what the runs under way were begun for
        self._ended = 0  # what those that are over have cost
        self._answers: dict[str, int] = {}
        for run in (run for each in recordings for run in each.runs):
            counts = (each.step.usage.output or 0 for each in run.steps if each.step.kind == "model")
            self._answers[run.agent] = max((self._answers.get(run.agent, 0), *counts))
        self._turn = asyncio.Lock()

    def why_not(self, price: int) -> str:
        """Why no request is made that costs as much; empty if it is."""
        return self._why_not(price, self._spent + sum(self._reserved.values()))

    @contextmanager
    def begun(self, estimate: int) -> Iterator[str]:
        """A run that may cost as much is under way while the block runs: no other one is begun with that.

        Yields why it must not begin; empty if it may.
        """
        taken = max(self._spent + sum(self._reserved.values()), self._ended + self._held)
        if why := self._why_not(estimate, taken):
            yield why
            return
        self._held += estimate
        try:
            yield ""
        finally:
            self._held -= estimate

    def ended(self, cost: int) -> None:
        """A run that was begun is over, and has cost as much."""
        self._ended += cost

    def _why_not(self, price: int, taken: int) -> str:
        left = max(0, self._most - taken)
        if price <= left:
            return ""
        costs = f"it would cost about {usd_text(price)}"
        return f"{costs}, and {usd_text(left)} of max_cost {usd_text(self._most)} is left"

    async def admit(self, request: StepRequest, step: Step) -> None:
        """Let a request to a model be made. Raises Fault (CONFIG) with a reason for one that may not."""
        key = request.run_id, step.number
        if key in self._reserved or key in self._settled:
            return  # it is made once more, since it failed
        tokens = len(request.text) // _CHARACTERS + 1
        usage = StepUsage(tokens, self._answers.get(request.agent) or _ANSWER)
        async with self._turn:
            price = await price_today(self._prices, step, usage)
            if price is None:
                raise _refused(
                    f"the price of {step.provider}.{step.name} is not known, so max_cost cannot be kept; "
                    "name it under prices: in agents.yaml"
                )
            if why := self.why_not(price):
                raise _refused(f"a request of {request.agent} to {step.name} was not made: {why}")
            self._reserved[key] = price

    def hear(self, event: Event) -> None:
        """Take in what a request has cost."""
        if not isinstance(event, StepChanged) or event.step.state == "begun":
            return
        key = event.step.run_id, event.step.number
        if (reserved := self._reserved.pop(key, None)) is not None:
            cost = Cost.of(event.step)
            self._spent += reserved if cost.unpriced and cost.cost is None and reserved else cost.cost or 0
            self._settled.add(key)


def _refused(why: str) -> Fault:
    return Fault(FaultType.CONFIG, why, data={REFUSED: True})


def _usage(detail: StepDetail) -> StepUsage:
    """What a recorded request took; by its length where it was not counted."""
    usage = detail.step.usage
    if usage.input is not None and usage.output is not None:
        return usage
    return StepUsage(len(detail.request) // _CHARACTERS + 1, len(detail.response) // _CHARACTERS + 1)
