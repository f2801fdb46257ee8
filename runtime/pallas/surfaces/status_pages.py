"""Liveness, readiness and metrics: the plain HTTP pages for operators."""

import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from pallas.health.preflight import ProviderReport
from pallas.model import AgentSnapshot, FleetSnapshot, FleetState

from .connection_shares import ConnectionShares
from .control.token_file import project_id
from .metrics import CONTENT_TYPE, Metrics
from .published_agent import timestamp
from .worker_metrics import metrics_of_all

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
