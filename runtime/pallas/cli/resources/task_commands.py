"""`pallas tasks`: list, show, cancel and follow tasks."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pallas.bounds.fleet_answer import read_answer
from pallas.client.chat_stream import DONE, IDLE, MAX_FRAME, Open
from pallas.client.client_faults import lost
from pallas.model import Fault, FaultType, codec
from pallas.safe_text import one_line

from .fleet_requests import OK, REFUSED, USAGE, FleetLocation, Wrong, complain, explained, run_with_fleet
from .text_output import FORMATS, as_json, as_yaml, when
from .text_tables import pairs, table, width_of

if TYPE_CHECKING:
    import httpx2

    from pallas.client import RestClient

_AGAIN: Final = (0.3, 1.0, 3.0, 10.0, 20.0)
"""Seconds before each retry: a restarted fleet then reports what happened to its tasks."""

USUAL: Final = 50
MOST: Final = 10_000
STATUSES: Final = ("working", "input_required", "completed", "failed", "cancelled")
_LEAST: Final = 8
_WHOLE: Final = 32
Body = dict[str, Any]

_COLUMNS: Final = ("ID", "AGENT", "STATUS", "STARTED", "CHANGED", "PROGRESS", "MESSAGE")


async def follow(
    opened: Open, path: str, origin: str, *, idle: float = IDLE
) -> AsyncGenerator[dict[str, Any]]:
    """Yield the task at ``path`` now and after each change; the last one is finished.

    Raises Fault: what the fleet refused; TRANSPORT when the connection cannot be restored; TIMEOUT when
    nothing, not even a heartbeat, came for ``idle`` seconds.
    """
    import httpx2

    pauses, known = iter(_AGAIN), False
    while True:
        begun = False
        try:
            async with opened("GET", path, timeout=idle, headers={"accept": "text/event-stream"}) as answer:
                begun = known = True
                async for task in _tasks(answer, origin):
                    pauses = iter(_AGAIN)
                    yield task
                    if task.get("status") not in ("working", "input_required"):
                        return
            fault = Fault(FaultType.TRANSPORT, f"{origin} ended before the task was over")
        except Fault as refused:
            if not known or refused.type is not FaultType.TRANSPORT:
                raise
            fault = refused
        except httpx2.TimeoutException as error:
            text = f"{origin} sent nothing for {idle:.0f} s, not even a heartbeat"
            raise Fault(FaultType.TIMEOUT, text) from error
        except httpx2.HTTPError as error:
            fault = lost(error, origin, connected=begun)
        pause = next(pauses, None)
        if pause is None:
            raise fault
        await asyncio.sleep(pause)


async def _tasks(answer: "httpx2.Response", origin: str) -> AsyncGenerator[dict[str, Any]]:
    import httpx2

    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        await read_answer(answer)
        raise Fault(FaultType.PROTOCOL, f"{origin} did not answer with a stream")
    async for message in httpx2.EventSource(answer, MAX_FRAME):
        if message.data == DONE:
            return
        try:
            chunk = codec.visible(codec.loads(message.data))
        except codec.Undecodable as error:
            text = f"{origin} sent something that cannot be read: {error}"
            raise Fault(FaultType.PROTOCOL, text) from error
        if isinstance(chunk, dict) and isinstance(task := chunk.get("task"), dict):
            yield task
        elif isinstance(chunk, dict) and chunk.get("type") == "error":
            body = {"error": chunk.get("message"), "code": chunk.get("code"), "data": chunk.get("data")}
            raise codec.fault_of(body, "the task could not be followed")


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The options of a list; ``limit`` is 0 for the default."""

    output: str = "table"
    agent: str = ""
    status: str = ""
    limit: int = 0


def show_list(options: TaskOptions, reach: FleetLocation) -> int:
    """Print the tasks; returns the exit status."""
    if problem := _wrong(options.output, options.status):
        complain(f"pallas tasks list: {problem}")
        return USAGE

    async def work(api: "RestClient") -> int:
        most = min(options.limit or USUAL, MOST)
        query = {"agent": options.agent, "status": options.status}
        plain = options.output == "table"
        found = [each async for each in api.items("/tasks", most=most + 1, visible=plain, **query)]
        shown = found[:most]
        if options.output == "json":
            print(as_json({"items": shown}))
        elif options.output == "yaml":
            print(as_yaml(shown) if shown else "[]")
        elif shown:
            print(table(list(_COLUMNS), [_row(body) for body in shown], width_of()))
        else:
            complain("no tasks")
        if len(found) > most:
            complain(f"… and more: --limit {min(10 * most, MOST)}")
        return OK

    return run_with_fleet(reach, work)


def show(task: str, output: str, reach: FleetLocation) -> int:
    """Print one task; returns the exit status."""
    if problem := _wrong(output):
        complain(f"pallas tasks show: {problem}")
        return USAGE

    async def work(api: "RestClient") -> int:
        body = await api.get(f"/tasks/{await _task_id(api, task)}", visible=output == "table")
        _print(body, output)
        return OK

    return run_with_fleet(reach, work)


def cancel(found: Sequence[str], reach: FleetLocation) -> int:
    """Cancel each task; the status is 1 if one was refused."""
    from pallas.model import Fault

    async def work(api: "RestClient") -> int:
        status = OK
        for task in found:
            try:
                body = await api.delete(f"/tasks/{await _task_id(api, task)}")
            except Fault as fault:
                if fault.data.get("reason") is None:
                    raise
                complain(f"{one_line(task, 40)}: {await explained(api, fault)}")
                status = REFUSED
                continue
            over = body.get("status") not in ("working", "input_required")
            print(f"{body.get('id')} {'is already ' + str(body.get('status')) if over else 'is cancelled'}")
        return status

    return run_with_fleet(reach, work)


def attach(task: str, output: str, reach: FleetLocation) -> int:
    """Follow a task to its end, with progress on stderr; the status says whether it was answered."""

    if problem := _wrong(output):
        complain(f"pallas tasks attach: {problem}")
        return USAGE

    async def work(api: "RestClient") -> int:
        which, detail, body = await _task_id(api, task), "", {}
        try:
            async with aclosing(follow(api.open, f"/tasks/{which}/events", api.place.origin)) as stream:
                async for body in stream:
                    line = _progress(body)
                    if line and line != detail:
                        complain(line)
                        detail = line
        except asyncio.CancelledError:
            complain(f"the task continues: pallas tasks attach {which}")
            raise
        return _ended(body, output)

    return run_with_fleet(reach, work)


def _ended(body: Body, output: str) -> int:
    status = body.get("status")
    if output != "table":
        print(as_json(body) if output == "json" else as_yaml([body]))
    elif status == "completed":
        print(body.get("text") or "")
    else:
        complain(f"{status}: {_fault(body)}" if _fault(body) else str(status))
    return OK if status == "completed" else REFUSED


def _print(body: Body, output: str) -> None:
    if output == "json":
        print(as_json(body))
        return
    if output == "yaml":
        print(as_yaml([body]))
        return
    rows = [
        ("Task", body.get("id")),
        ("Agent", body.get("agent")),
        ("Status", body.get("status")),
        ("Asked by", body.get("ownerId")),
        ("With", body.get("kind")),
        ("Began", when(body.get("createdAt"))),
        ("Changed", when(body.get("updatedAt"))),
        ("Kept until", when(body.get("expiresAt"))),
        ("Thread", body.get("threadId")),
        ("Run", body.get("runId")),
        ("Progress", body.get("progress")),
        ("Question", "\n".join(_questions(body))),
        ("Message", body.get("preview")),
        ("Fault", _fault(body)),
    ]
    print(pairs([(label, str(value)) for label, value in rows if value]))
    if body.get("text"):
        print(f"\n{body['text']}")


def _progress(body: Body) -> str:
    """Return its progress in one line."""
    if body.get("status") == "input_required":
        return f"waits for an answer: {'; '.join(one_line(each, 300) for each in _questions(body))}"
    return str(body.get("progress") or "") if body.get("status") == "working" else ""


def _questions(body: Body) -> list[str]:
    asked = body.get("request")
    each = asked.values() if isinstance(asked, Mapping) else ()
    params = [one.get("params") for one in each if isinstance(one, Mapping)]
    return [str(one.get("message") or "") for one in params if isinstance(one, Mapping)]


def _fault(body: Body) -> str:
    fault = body.get("fault")
    return str(fault.get("error") or "") if isinstance(fault, Mapping) else ""


async def _task_id(api: "RestClient", task: str) -> str:
    """Return the whole id of a task. Raises Wrong for an ambiguous prefix, Fault when no task has it."""
    from pallas.client.rest_client import part

    if not _LEAST <= len(task) < _WHOLE:
        return part(task)
    found = [each["id"] async for each in api.items("/tasks", most=1_000) if each["id"].startswith(task)]
    if len(found) > 1:
        raise Wrong(f"{one_line(task, 40)}: {len(found)} tasks begin with that; write more of the id")
    return str(found[0]) if found else part(task)


def _wrong(output: str, status: str = "") -> str:
    if output not in FORMATS:
        return f"--output {one_line(output, 40)}: allowed: {', '.join(FORMATS)}"
    if status and status not in STATUSES:
        return f"--status {one_line(status, 40)}: allowed: {', '.join(STATUSES)}"
    return ""


def _row(body: Body) -> list[str]:
    texts = [str(body.get(key) or "") for key in ("id", "agent", "status")]
    detail = _fault(body) or str(body.get("progress") or "")
    times = [when(body.get("createdAt")), when(body.get("updatedAt"))]
    return [*texts, *times, one_line(detail, 80), str(body.get("preview") or "")]
