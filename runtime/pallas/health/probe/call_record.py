"""The results of an agent's last real calls to its downstreams, in addition to the probes."""

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from typing import Final

from pallas.config.models import DownstreamConfig
from pallas.model import AuthHop, CallOutcome, Downstream, ProbeResult, RunEvent, RunFinished, ToolEvent
from pallas.safe_text import one_line

_NO_ANSWER: Final = "no answer"
_CALL: Final = "tools/call"
# Most runs with an unanswered request that are remembered; more than can be in flight at a time.
_MAX_RUNS: Final = 1_000


class CallRecord:
    """The last call to each of ``downstreams``, from the events of one agent's runs. Safe from any thread.

    HTTP 401 and 403 mean missing credentials, 5xx and no answer that the downstream fails. A tool that
    answers with an error is no evidence against its server, and neither is a refused token of a caller. Holds
    one entry per known downstream.
    """

    def __init__(self, downstreams: Sequence[DownstreamConfig]) -> None:
        self._known = {config.name: config for config in downstreams}
        self._last: dict[str, CallOutcome] = {}
        self._failing: dict[str, str] = {}  # by downstream: the method that failed last
        self._down: set[str] = set()  # of those that failed, whom a probe has not reached since
        self._silent: dict[str, dict[str, AuthHop]] = {}  # by run and downstream
        self._lock = Lock()

    def last(self, name: str) -> CallOutcome | None:
        """The last call to that downstream, None if there was none."""
        return self._last.get(name)

    def observe(self, event: RunEvent) -> bool:
        """Take an event; True if it changes the health of a downstream."""
        if not isinstance(event, AuthHop | ToolEvent | RunFinished):
            return False
        with self._lock:
            before = self._evidence()
            if isinstance(event, RunFinished):
                self._finished(event)
            elif isinstance(event, ToolEvent):
                if event.server in self._known and not event.nested and event.phase != "started":
                    self._tool(event)
            elif event.downstream in self._known and event.method:
                self._hop(event)
            return self._evidence() != before

    def probed(self, found: Sequence[Downstream], began: float) -> None:
        """Take the results of probes that began at ``began`` (Unix seconds).

        A downstream that answers again is well: its last call counts no more if that had no answer, or if a
        probe has failed since. A call that fails though each probe is answered goes on counting.
        """
        with self._lock:
            for each in found:
                call = self._last.get(each.name)
                if each.name not in self._failing or call is None or call.at > began:
                    continue
                if each.reach is not ProbeResult.OK:
                    self._down.add(each.name)
                elif each.name in self._down or call.detail == _NO_ANSWER:
                    self._answered(each.name, replace(call, reach=ProbeResult.OK))

    def _hop(self, hop: AuthHop) -> None:
        name, status = hop.downstream, hop.status
        if status is None:
            # A cancelled run leaves unanswered requests too: its outcome decides whether they count.
            if hop.run_id in self._silent or len(self._silent) < _MAX_RUNS:
                self._silent.setdefault(hop.run_id, {})[name] = hop
            return
        self._silent.get(hop.run_id, {}).pop(name, None)
        if status in (401, 403):
            own = hop.source == "forwarded" or (
                hop.source == "none" and self._known[name].forward_inbound_auth
            )
            detail = f"HTTP {status}" + (" to the caller's own credential" if own else "")
            self._fail(hop, detail, ProbeResult.UNKNOWN if own else ProbeResult.AUTH_REQUIRED)
        elif status >= 500 and hop.method != "server/discover":  # older servers may choke on that one
            self._fail(hop, f"HTTP {status}", ProbeResult.UNREACHABLE)
        elif 200 <= status < 300 and name in self._failing and hop.method in (_CALL, self._failing[name]):
            # A list that succeeds proves nothing about calls; an accepted call proves that all is well.
            self._answered(name, CallOutcome(True, hop.at))

    def _tool(self, event: ToolEvent) -> None:
        if event.phase == "completed":
            self._answered(event.server, CallOutcome(True, event.at))
        elif event.server not in self._failing:
            detail = one_line(f"{event.tool} failed", 100)
            self._last[event.server] = CallOutcome(False, event.at, detail)

    def _finished(self, run: RunFinished) -> None:
        silent = self._silent.pop(run.run_id, {})
        if run.outcome != "cancelled":
            for hop in silent.values():
                self._fail(hop, _NO_ANSWER, ProbeResult.UNREACHABLE)

    def _fail(self, hop: AuthHop, detail: str, reach: ProbeResult) -> None:
        self._failing[hop.downstream] = hop.method
        self._down.discard(hop.downstream)
        self._last[hop.downstream] = CallOutcome(False, hop.at, detail, reach)

    def _answered(self, name: str, outcome: CallOutcome) -> None:
        self._failing.pop(name, None)
        self._down.discard(name)
        self._last[name] = outcome

    def _evidence(self) -> dict[str, tuple[ProbeResult, str]]:
        return {
            name: (call.reach, call.detail)
            for name, call in self._last.items()
            if call.reach in (ProbeResult.UNREACHABLE, ProbeResult.AUTH_REQUIRED)
        }
