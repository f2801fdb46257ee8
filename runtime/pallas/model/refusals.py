"""Faults that surfaces distinguish by more than their type: each has a ``data["reason"]``."""

from collections.abc import Iterable
from typing import Any, Final, Protocol

from pallas.model import Fault, FaultType, ProviderKind
from pallas.safe_text import one_line

REASON: Final = "reason"
"""The key in a Fault's data. HTTP: not_found 404, conflict and in_use 409, forbidden 403,
unauthenticated 401, unprocessable 422, too_many 429."""

OF_REQUEST: Final = frozenset({"key", "limit", "cancelled", REASON})
"""Keys in the data of a Fault that refuses one request only: the next one may succeed."""

OTHERS: Final = frozenset({"taken_over", "handed_over"})
"""Reasons for which a run ends here and goes on elsewhere."""
GONE: Final = frozenset({"not_found", *OTHERS})
"""Reasons for which a run's end is not written: its thread was deleted, or another fleet has the run."""

RETRY_AFTER: Final = 5.0
"""Seconds after which a caller should try again that was refused because the fleet stops."""

STOPPED: Final = "the fleet stopped in the middle of this task"
"""How the reason begins if a task was under way when its fleet stopped."""


def not_found(message: str) -> Fault:
    """There is none, or it is another caller's. The words are the same for both (UPSTREAM)."""
    return Fault(FaultType.UPSTREAM, message, data={REASON: "not_found"})


def conflict(message: str, **data: Any) -> Fault:
    """It exists already, or is declared elsewhere (CONFIG)."""
    return Fault(FaultType.CONFIG, message, data={REASON: "conflict", **data})


def stale(kind: str, name: str, version: int) -> Fault:
    """The caller names an old version (CONFIG). ``data`` has the current one."""
    text = f"version: {kind} {name} now has version {version}; read it again, and repeat your change on that"
    return conflict(text, key="version", version=version)


def taken_run() -> Fault:
    """A run of that id exists already, whether it is the caller's or not (CONFIG)."""
    return conflict("there is a run of that id already; leave run_id out, or choose another")


def thread_busy() -> Fault:
    """Another run has the thread, perhaps in another fleet (TRANSPORT)."""
    text = "another run of this conversation is under way; try again when it is over"
    return Fault(FaultType.TRANSPORT, text, data={REASON: "busy", "retry_after": 1.0})


def queue_full(most: int) -> Fault:
    """Too many runs wait for a conversation already (TRANSPORT)."""
    text = f"{most} messages wait in this conversation already; wait for answers, then send again"
    return Fault(FaultType.TRANSPORT, text, data={"retry_after": 5.0})


def stopping() -> Fault:
    """The fleet stops: another one, or its next life, may do it (TRANSPORT)."""
    text = "the fleet is stopping; try again when it is back"
    return Fault(FaultType.TRANSPORT, text, data={"retry_after": RETRY_AFTER})


def draining() -> Fault:
    """The fleet ends the runs that it has, and takes no new ones (TRANSPORT)."""
    text = "the fleet is draining: it finishes the runs it has and takes no new ones; try again later"
    return Fault(FaultType.TRANSPORT, text, data={"retry_after": RETRY_AFTER})


def taken_over() -> Fault:
    """Another fleet has taken this run over, or it is over: this one must not write any more (UPSTREAM)."""
    text = "another fleet continues this run, because this one did not answer for too long"
    return Fault(FaultType.UPSTREAM, text, data={REASON: "taken_over"})


def handed_over(run_id: str) -> Fault:
    """This fleet stops and leaves the run to another one (TRANSPORT)."""
    text = (
        "the fleet is stopping and hands this run over: the next one continues it, and the answer will be "
        "in its conversation"
    )
    return Fault(FaultType.TRANSPORT, text, retryable=False, data={REASON: "handed_over", "run_id": run_id})


def drains_already(replica: str) -> Fault:
    """The replica ends without being asked again (CONFIG)."""
    return conflict(
        f"replica {replica} is draining already: it ends when its runs are done, or after its drain_timeout"
    )


def in_use(message: str, **data: Any) -> Fault:
    """Others refer to it (CONFIG)."""
    return Fault(FaultType.CONFIG, message, data={REASON: "in_use", **data})


def unprocessable(message: str, **data: Any) -> Fault:
    """The request was understood but cannot be carried out (CONFIG)."""
    return Fault(FaultType.CONFIG, message, data={REASON: "unprocessable", **data})


def forbidden(message: str, **data: Any) -> Fault:
    """The caller is known but lacks the permission (AUTH)."""
    return Fault(FaultType.AUTH, message, data={REASON: "forbidden", **data})


def unauthenticated(message: str, **data: Any) -> Fault:
    """The caller is not known (AUTH)."""
    return Fault(FaultType.AUTH, message, data={REASON: "unauthenticated", **data})


class NamedProvider(Protocol):
    """A provider of an agent."""

    @property
    def id(self) -> str:
        """The word that callers choose it by."""
        ...

    @property
    def kind(self) -> ProviderKind:
        """What its models do."""
        ...


def check_provider(provider: str, known: Iterable[NamedProvider]) -> None:
    """Raise Fault (unprocessable, CONFIG, DR-24) for a provider that the agent does not have, or that cannot
    answer.
    """
    kinds = {each.id: each.kind for each in known}
    if provider and provider not in kinds:
        text = f'Provider "{one_line(provider, 80)}" is not registered in the ProviderRegistry'
        raise unprocessable(text, providers=list(kinds))
    if (kind := kinds.get(provider, "llm")) != "llm":
        raise unprocessable(
            f'Provider "{one_line(provider, 80)}" is of kind {kind} and cannot answer; choose an llm',
            providers=[name for name, each in kinds.items() if each == "llm"],
        )


def too_many(message: str, seconds: float) -> Fault:
    """Too many wrong tokens came from that address: it may try again after ``seconds`` (AUTH)."""
    return Fault(FaultType.AUTH, message, data={REASON: "too_many", "retry_after": round(seconds + 0.05, 1)})
