"""Which of the fleet's runs belongs to which answer."""

from collections import OrderedDict
from collections.abc import Iterable
from math import ceil
from typing import Final

from pallas.model import Event, ModelRetry, RunFinished, RunStarted, StepStarted, ToolEvent

from .conversation import ChatEntry

MAX_RUNS: Final = 2_000


class Runs:
    """The newest 2,000 runs that the fleet reported, by their id and by their caller's trace."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()
        # Of runs whose model call failed and is made again.
        self._retries: dict[str, ModelRetry] = {}

    def absorb(self, events: Iterable[Event]) -> None:
        """Take in these events."""
        for event in events:
            if isinstance(event, ModelRetry):
                self._retries[event.run_id] = event
            elif isinstance(event, StepStarted | ToolEvent | RunFinished):
                self._retries.pop(event.run_id, None)
            elif isinstance(event, RunStarted):
                self._known[event.run_id] = event.run_id
                # One message makes several runs of one trace: the first is the one that was asked.
                if event.trace_id:
                    self._known.setdefault(event.trace_id, event.run_id)
        while len(self._known) > 2 * MAX_RUNS:
            self._known.popitem(last=False)
        while len(self._retries) > MAX_RUNS:
            del self._retries[next(iter(self._retries))]

    def traced(self, trace_id: str) -> str:
        """Return the id of the run that was asked with that trace; empty if the fleet reported none."""
        return self._known.get(trace_id, "")

    def waits_for(self, trace_id: str, now: float) -> str:
        """Return what the run that was asked with that trace waits for before it asks its model again.

        Empty if it does not wait; ``now`` in Unix seconds.
        """
        retry = self._retries.get(self.traced(trace_id))
        if retry is None or (left := retry.at + retry.wait - now) <= 0:
            return ""
        return f"{retry.reason}, retry {retry.retry} of {retry.retries} in {ceil(left)} s"

    def of(self, entry: ChatEntry) -> str:
        """Return the id of the run behind an answer; empty if the fleet reported none."""
        return self._known.get(entry.run_id) or self._known.get(entry.trace_id) or ""
