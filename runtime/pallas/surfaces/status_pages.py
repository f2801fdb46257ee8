"""Liveness, readiness and metrics: the plain HTTP pages for operators."""

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import httpx2
from starlette.requests import Request
from starlette.responses import Response

from pallas.health.preflight import ProviderReport
from pallas.model import AgentSnapshot, FleetSnapshot, FleetState

from .connection_shares import ConnectionShares
from .control.token_file import project_id
from .metrics import CONTENT_TYPE, Metrics
from .published_agent import timestamp

Page = Callable[[Request], Awaitable[Response]]

_READINESS: Final = {
    FleetState.RUNNING: "ready",
    FleetState.STARTING: "starting",
    FleetState.FAILED: "failed",
}
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


def status_pages(
    snapshot: Callable[[], FleetSnapshot],
    *,
    root: Path,
    providers: Callable[[], Sequence[ProviderReport]],
    metrics: Metrics,
    shares: ConnectionShares | None = None,
) -> Mapping[str, Page]:
    """Return the pages by path, for ``GET`` (PR-23): put a ``HostOriginGuard`` before them.

    ``/healthz`` reports liveness and the results of the provider checks, and names the replica. ``/readyz``
    is 503 unless the fleet runs and takes new runs (``draining``: it only finishes those in flight).
    ``/metrics`` is for Prometheus; with ``shares`` it has those of all worker processes. One agent's failure
    does not affect readiness; its ``conditions`` give the reason. ``project`` stands for the project in
    ``root``, and ``pid`` is the process, for `pallas ready`. No answer repeats any part of its request.
    """

    identity = project_id(root)

    async def healthz(_: Request) -> Response:
        reports = [_report(report) for report in providers()]
        return _json({"status": "ok", "providers": reports, **replica_of(snapshot())})

    async def readyz(_: Request) -> Response:
        fleet = snapshot()
        ready = fleet.state is FleetState.RUNNING
        body = {
            "status": _READINESS.get(fleet.state, "draining"),
            "project": identity,
            "pid": os.getpid(),
            "agents": {agent.name: agent.state.value for agent in fleet.agents},
            "conditions": {agent.name: _conditions(agent) for agent in fleet.agents},
        }
        return _json(body) if ready else _json(body, 503, {"retry-after": "5"})

    async def scrape(request: Request) -> Response:
        if shares is None:
            text = metrics.render()
        else:
            text = await metrics_of_all(request, metrics, shares, request.url.scheme)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    return {"/healthz": healthz, "/readyz": readyz, "/metrics": scrape}


def replica_of(fleet: FleetSnapshot) -> dict[str, Any]:
    """Return which replica answers and how many there are; nothing for a fleet without a ledger."""
    return {"replica": fleet.replica, "replicas": fleet.replicas} if fleet.replica else {}


def _conditions(agent: AgentSnapshot) -> dict[str, Any]:
    body: dict[str, Any] = {"booted": agent.booted, "ready": agent.ready, "healthy": agent.healthy}
    if not agent.healthy and agent.health.message:
        body["reason"] = agent.health.message
    if agent.crashes:
        body["crashes"] = agent.crashes
    if agent.restart_at is not None:
        body["restart_at"] = timestamp(agent.restart_at)
    return body


def _report(report: ProviderReport) -> dict[str, Any]:
    body: dict[str, Any] = {"provider": report.provider, "active": report.active, "ok": report.ok}
    return body | ({"message": report.message} if report.message else {})


def _json(body: Mapping[str, Any], status: int = 200, more: Mapping[str, str] = _NO_HEADERS) -> Response:
    text = json.dumps(body, ensure_ascii=False)
    headers = {"cache-control": "no-cache", "x-content-type-options": "nosniff", **more}
    return Response(text, status, headers, media_type="application/json")


ALONE: Final = "pallas-worker-alone"
"""A header of a request that asks for the metrics of one process."""
_ANSWER_S: Final = 2.0
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?( .+)")
_ABOUT: Final = re.compile(r"# (?:HELP|TYPE) (\S+)")


async def metrics_of_all(request: Request, metrics: Metrics, shares: ConnectionShares, scheme: str) -> bytes:
    """Return the metrics of this process and of those others that answer within two seconds."""
    if ALONE in request.headers:
        return metrics.render()
    texts = {shares.number: metrics.render().decode()}
    headers = {"host": request.headers.get("host", ""), ALONE: "1"}
    async with httpx2.AsyncClient(timeout=_ANSWER_S, trust_env=False, verify=False) as client:

        async def ask(number: int, port: int) -> None:
            with suppress(httpx2.HTTPError):
                answer = await client.get(f"{scheme}://127.0.0.1:{port}/metrics", headers=headers)
                if answer.status_code == 200:
                    texts[number] = answer.text

        await asyncio.gather(*(ask(number, port) for number, port in shares.other_ports().items()))
    return merged(texts).encode()


def merged(texts: Mapping[int, str]) -> str:
    """Return these metrics as one text: each metric once, with the samples of every process."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for number, text in sorted(texts.items()):
        for lines in _metrics_in(text.splitlines()):
            about = [line for line in lines if line.startswith("#")]
            name = _ABOUT.match(about[0]) if about else None
            _, samples = found.setdefault(name[1] if name else lines[0], (about, []))
            samples += [_labelled(line, number) for line in lines if not line.startswith("#")]
    return "".join(f"{line}\n" for about, samples in found.values() for line in (*about, *samples))


def _metrics_in(lines: Sequence[str]) -> list[list[str]]:
    """Return the lines of each metric: its description, its type and its samples."""
    parts: list[list[str]] = []
    for line in lines:
        if line.startswith("# HELP") or not parts:
            parts.append([])
        if line:
            parts[-1].append(line)
    return [each for each in parts if each]


def _labelled(sample: str, worker: int) -> str:
    match = _SAMPLE.fullmatch(sample)
    if match is None:
        return sample
    name, labels, value = match.groups()
    others = f",{labels}" if labels else ""
    return f'{name}{{worker="{worker}"{others}}}{value}'
