"""Which of the fleet's runs belongs to which answer."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from pallas.model import Event, RunStarted

from .conversation import ChatEntry

MAX_RUNS: Final = 2_000


class Runs:
    """The newest 2,000 runs that the fleet reported, by their id and by their caller's trace."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, str] = OrderedDict()

    def absorb(self, events: Iterable[Event]) -> None:
        """Take in these events."""
        for event in events:
            if isinstance(event, RunStarted):
                self._known[event.run_id] = event.run_id
                # One message makes several runs of one trace: the first is the one that was asked.
                if event.trace_id:
                    self._known.setdefault(event.trace_id, event.run_id)
        while len(self._known) > 2 * MAX_RUNS:
            self._known.popitem(last=False)

    def traced(self, trace_id: str) -> str:
        """Return the id of the run that was asked with that trace; empty if the fleet reported none."""
        return self._known.get(trace_id, "")

    def of(self, entry: ChatEntry) -> str:
        """Return the id of the run behind an answer; empty if the fleet reported none."""
        return self._known.get(entry.run_id) or self._known.get(entry.trace_id) or ""
