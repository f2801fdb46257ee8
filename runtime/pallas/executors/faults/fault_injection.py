"""Injects faults into the requests to models and the calls of tools of one event loop."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

import httpx2
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, PARSE_ERROR, REQUEST_TIMEOUT

from pallas.aiohttp_transport import Interceptor
from pallas.executors.model_client.provider_connections import provider_connections
from pallas.executors.replay.replay import current_replay, is_hurried
from pallas.model.fault_rules import AGENT, UNCOVERED, ChosenFault, FaultPlan, FaultRule, FaultSchedule
from pallas.telemetry.step_record import current_step
from pallas.telemetry.trace_context import current_run

from .provider_failures import (
    MARK,
    cut_answer,
    cut_response,
    garbage_answer,
    garbage_response,
    status_answer,
    status_response,
)

log = logging.getLogger(__name__)

type Send = Callable[[httpx2.Request], Awaitable[httpx2.Response]]
"""Sends a request over a connection."""

MAX_TRACES: Final = 64
"""Traces with a plan of their own that are known at the same time."""
_TOOL_ERRORS: Final = {
    "garbage": (PARSE_ERROR, "Failed to parse JSON response: Invalid JSON (injected fault)"),
    "cut": (CONNECTION_CLOSED, "Connection closed"),
    "dropped": (CONNECTION_CLOSED, "Connection closed"),
}
"""The errors of the MCP SDK. It has one for all HTTP statuses that are injected."""
_STATUS_ERROR: Final = INTERNAL_ERROR, "Server returned an error response"


class FaultInjection:
    """Injects the faults of a plan, in one event loop. Its calls are counted from the start on.

    Runs with a trace that was begun have a plan and counts of their own.
    """

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan
        self._own = FaultSchedule(plan)
        self._begun: OrderedDict[str, FaultSchedule] = OrderedDict()
        self._next: Interceptor | None = None
        self._told: set[tuple[str, str]] = set()

    def begin(self, trace_id: str, plan: FaultPlan) -> None:
        """Inject the faults of another plan into the runs with that trace. The second call does nothing."""
        if trace_id not in self._begun:
            self._begun[trace_id] = FaultSchedule(plan)
            if len(self._begun) > MAX_TRACES:
                self._begun.popitem(last=False)

    def begun(self, trace_id: str) -> FaultPlan | None:
        """The plan that the runs with that trace have of their own."""
        schedule = self._begun.get(trace_id)
        return schedule.plan if schedule is not None else None

    def install(self) -> None:
        """Inject faults in this event loop from now on, also into what a replay that is installed answers."""
        _of_loops[asyncio.get_running_loop()] = self
        connections = provider_connections()
        self._next, connections.interceptor = connections.interceptor, self.answer_model

    def uninstall(self) -> None:
        """Inject no more in this event loop."""
        if current_injection() is self:
            del _of_loops[asyncio.get_running_loop()]
            provider_connections().interceptor, self._next = self._next, None

    async def answer_model(self, request: httpx2.Request) -> httpx2.Response | None:
        """The answer of a provider that fails, if this request of a run gets a fault; else the usual one.

        Raises httpx2.TransportError for a lost connection, and for an answer that is too late.
        """
        if (step := current_step()) is not None:
            value = step.value
            chosen = self._choose(value.name, f"{value.provider}.{value.name}")
            if chosen is not None and (answer := await _failed_answer(chosen, request)) is not None:
                return answer
        return await self._next(request) if self._next is not None else None

    async def call_tool(
        self, server: str, tool: str, call: Callable[[], Awaitable[Any]], limit: float | None = None
    ) -> Any:
        """Make a call of a tool that is not sent over HTTP, or what a fault makes of it.

        ``limit`` are the seconds that it may take. Raises MCPError as the SDK does. After ``cut`` the call
        was made and its answer is lost; a replay does not make it.
        """
        chosen = self._choose(server, f"{server}__{tool}")
        if chosen is None:
            return await call()
        what = chosen.rule.what
        if what == "slow":
            if await _is_too_late(chosen.rule, limit):
                raise MCPError(code=REQUEST_TIMEOUT, message="Request 'tools/call' timed out")
            return await call()
        if what == "cut" and current_replay() is None:
            with suppress(MCPError):
                await call()
        code, message = _TOOL_ERRORS.get(what, _STATUS_ERROR)
        raise MCPError(code=code, message=message)

    async def send_call(self, server: str, tool: str, request: httpx2.Request, send: Send) -> httpx2.Response:
        """Send the request of a call of a tool, or return what a fault makes of its answer.

        Raises httpx2.TransportError as ``send`` does. After ``cut`` the call was made.
        """
        return await _sent(self._choose(server, f"{server}__{tool}"), request, send)

    async def send_to_agent(self, agent: str, request: httpx2.Request, send: Send) -> httpx2.Response:
        """As ``send_call``, of a message to a remote agent."""
        return await _sent(self._choose(AGENT + agent), request, send)

    def choose_for_worker(self, agent: str) -> FaultRule | None:
        """Count a message to a worker, and return the rule that it gets a fault from; None without one."""
        chosen = self._choose(AGENT + agent)
        return chosen.rule if chosen is not None else None

    def tell_uncovered(self, provider: str, model: str) -> None:
        """Say once that a model which a rule fits gets no faults."""
        names = model, f"{provider}.{model}"
        rule = next((each for each in self.plan.rules if any(map(each.fits, names))), None)
        if rule is not None and names not in self._told:
            self._told.add(names)
            log.warning("no fault is injected into %s, though to: %s fits it: %s", model, rule.to, UNCOVERED)

    def _choose(self, *names: str) -> ChosenFault | None:
        run = current_run()
        schedule = self._begun.get(run.context.trace_id, self._own) if run is not None else self._own
        chosen = schedule.next_fault(names)
        if chosen is not None:
            log.info(
                "fault injected: %s into call %d of %s",
                chosen.rule.what,
                chosen.number,
                chosen.name,
                extra={"agent": run.agent, "run_id": run.run_id} if run is not None else {},
            )
        return chosen


def current_injection() -> FaultInjection | None:
    """What injects faults into the running event loop; None without."""
    return _of_loops.get(asyncio.get_running_loop()) if _of_loops else None


_of_loops: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, FaultInjection]] = WeakKeyDictionary()


async def _failed_answer(chosen: ChosenFault, request: httpx2.Request) -> httpx2.Response | None:
    """The answer that a request gets; None if it is only late."""
    rule = chosen.rule
    match rule.what:
        case "slow" | "dropped":
            await _delay(rule, request)
            return None
        case "cut":
            return cut_answer(request)
        case "garbage":
            return garbage_answer(request)
        case _:
            return status_answer(int(rule.what), rule.retry_after, request)


async def _sent(chosen: ChosenFault | None, request: httpx2.Request, send: Send) -> httpx2.Response:
    if chosen is None:
        return await send(request)
    rule = chosen.rule
    match rule.what:
        case "slow" | "dropped":
            await _delay(rule, request)
            return await send(request)
        case "cut":
            answer = await send(request)
            await answer.aread()
            return cut_response(b"", answer.headers.get("content-type", ""), request)
        case "garbage":
            return garbage_response(request)
        case _:
            return status_response(int(rule.what), rule.retry_after, {"error": MARK}, request)


async def _delay(rule: FaultRule, request: httpx2.Request) -> None:
    """Keep a slow request from being sent for so long. Raises httpx2.TransportError for too long, and for a
    lost connection."""
    if rule.what == "dropped":
        raise httpx2.RemoteProtocolError("Server disconnected", request=request)
    if await _is_too_late(rule, request.extensions.get("timeout", {}).get("read")):
        raise httpx2.ReadTimeout("no answer in time", request=request)


async def _is_too_late(rule: FaultRule, limit: float | None) -> bool:
    """Wait as long as a slow answer takes, at most ``limit`` seconds; returns whether it takes longer."""
    await _pause(rule.seconds if limit is None else min(rule.seconds, limit))
    return limit is not None and rule.seconds > limit


async def pause(rule: FaultRule) -> None:
    """Wait as long as a slow answer takes."""
    await _pause(rule.seconds)


async def _pause(seconds: float) -> None:
    """Wait; no time passes in a replay whose answers come at once."""
    await asyncio.sleep(0 if is_hurried() else seconds)
