"""Faults that surfaces tell apart by more than their type: each has its ``data["reason"]``."""

from collections.abc import Collection
from typing import Any, Final, Literal

from pallas.model import Fault, FaultType
from pallas.model.safe_text import one_line

Reason = Literal[
    "not_found", "conflict", "in_use", "forbidden", "unauthenticated", "unprocessable", "too_many"
]

REASON: Final = "reason"
"""The key in a Fault's data. HTTP: not_found 404, conflict and in_use 409, forbidden 403,
unauthenticated 401, unprocessable 422, too_many 429."""

STOPPED: Final = "the fleet stopped in the middle of this task"
"""How the reason of a task begins that was under way when its fleet went."""


def not_found(message: str) -> Fault:
    """There is none, or it is another caller's: both in the same words (UPSTREAM)."""
    return Fault(FaultType.UPSTREAM, message, data={REASON: "not_found"})


def conflict(message: str, **data: Any) -> Fault:
    """It is there already, or what declares it is elsewhere (CONFIG)."""
    return Fault(FaultType.CONFIG, message, data={REASON: "conflict", **data})


def stale(kind: str, name: str, version: int) -> Fault:
    """It has another version by now than the caller names (CONFIG): ``data`` has the current one."""
    text = (
        f"version: {kind} {name} has version {version} by now; read it again, and repeat your change on that"
    )
    return conflict(text, key="version", version=version)


def taken_run() -> Fault:
    """There is a run of that id already, whoever asked for it (CONFIG)."""
    return conflict("there is a run of that id already; leave run_id out, or choose another")


def in_use(message: str, **data: Any) -> Fault:
    """Others need it (CONFIG)."""
    return Fault(FaultType.CONFIG, message, data={REASON: "in_use", **data})


def unprocessable(message: str, **data: Any) -> Fault:
    """It was understood and cannot be done as it is written (CONFIG)."""
    return Fault(FaultType.CONFIG, message, data={REASON: "unprocessable", **data})


def forbidden(message: str, **data: Any) -> Fault:
    """Who asks is known and may not (AUTH)."""
    return Fault(FaultType.AUTH, message, data={REASON: "forbidden", **data})


def unauthenticated(message: str, **data: Any) -> Fault:
    """Nobody knows who asks (AUTH)."""
    return Fault(FaultType.AUTH, message, data={REASON: "unauthenticated", **data})


def check_provider(provider: str, known: Collection[str]) -> None:
    """Raises Fault (unprocessable, CONFIG, DR-24) for a provider that the agent does not have."""
    if provider and provider not in known:
        text = f'Provider "{one_line(provider, 80)}" is not registered in the ProviderRegistry'
        raise unprocessable(text, providers=list(known))


def too_many(message: str, seconds: float) -> Fault:
    """Wrong tokens from that address: it may come again in so many ``seconds`` (AUTH)."""
    return Fault(FaultType.AUTH, message, data={REASON: "too_many", "retry_after": round(seconds + 0.05, 1)})
