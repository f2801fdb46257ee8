"""A run's requests to its downstreams and their credentials, each kind listed once."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from pallas.model import AuthHop, LoopStopped

from ..text import clock, count, since

MAX_REQUESTS: Final = 100
"""Different requests that are kept of one run."""

_REFUSED: Final = frozenset({401, 403, 407, 429})
_CONNECTION: Final = frozenset({"", "initialize", "server/discover", "ping", "logging/setLevel"})


@dataclass(slots=True)
class DownstreamRequest:
    """Requests that are the same but for their time: the first of them, and how many there were."""

    event: AuthHop
    times: int = 1

    @property
    def notice(self) -> str:
        """A word for the feed about a failed request; empty otherwise.

        400, 404 and 405 are no failures: clients of both protocol versions send requests that a server may
        not know.
        """
        event = self.event
        if event.status is None:
            return "no answer" if event.method else ""
        if event.status in _REFUSED or event.status >= 500:
            return f"HTTP {event.status}"
        return "expired" if _expired(event) else ""

    @property
    def label(self) -> str:
        """Server and credential in one line, with as much of the fingerprint as distinguishes it."""
        event = replace(self.event, fingerprint=short(self.event.fingerprint))
        return f"{event.downstream}: {credential_of(event)}"

    @property
    def likeness(self) -> tuple[str, ...]:
        """The key of its line in the feed: requests with the same key share one line."""
        event = self.event
        return event.downstream, event.source, event.fingerprint, self.notice

    @property
    def details(self) -> str:
        """All of it, in one line."""
        event = self.event
        what = event.tool or event.method
        parts = [f"{event.downstream} {what}".strip(), credential_of(event)]
        if event.audience:
            parts.append(f"for {', '.join(event.audience)}")
        parts += [f"{name} {text}" for name, text in claims_of(event)]
        if event.expires_at is not None:
            word = "expired" if _expired(event) else "expires"
            parts.append(f"{word} {since(event.expires_at, event.at)}")
        parts.append("no answer" if event.status is None else f"HTTP {event.status}")
        again = f"  {count(self.times, 'time')}" if self.times > 1 else ""
        return f"{clock(event.at)} {', '.join(parts)}{again}"


class DownstreamRequests:
    """The requests of one run, oldest first; ``left_out`` counts those beyond ``MAX_REQUESTS`` kinds."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], DownstreamRequest] = {}
        self.left_out = 0

    def __iter__(self) -> Iterator[DownstreamRequest]:
        return iter(self._kinds.values())

    def add(self, event: AuthHop) -> DownstreamRequest | None:
        """Count a request; return its kind, None when there are too many kinds."""
        kind = kind_of(event)
        if (request := self._kinds.get(kind)) is not None:
            request.times += 1
            return request
        if len(self._kinds) >= MAX_REQUESTS:
            self.left_out += 1
            return None
        request = self._kinds[kind] = DownstreamRequest(event)
        return request


def kind_of(event: AuthHop) -> tuple[object, ...]:
    """Return the key by which requests of a run are counted together."""
    return (
        event.downstream,
        event.method,
        event.tool,
        event.source,
        event.fingerprint,
        event.status,
        event.audience,
        event.expires_at,
    )


def credential_of(event: AuthHop) -> str:
    """Return the credential: its fingerprint and its source."""
    if event.source == "none":
        return "no credential"
    origin = f" ({event.variable})" if event.variable else ""
    key = f"key {event.fingerprint} {event.source}" if event.fingerprint else f"a {event.source} key"
    return key + origin


def claims_of(event: AuthHop) -> tuple[tuple[str, str], ...]:
    """Return who a token says it is for and from, by the names of the claims."""
    claims = (("sub", event.subject), ("iss", event.issuer), ("scope", event.scope))
    return tuple((name, text) for name, text in claims if text)


def is_connection(method: str) -> bool:
    """Return whether a request makes or keeps a connection: a client sends it by itself."""
    return method in _CONNECTION or method.endswith("/list") or method.startswith("notifications/")


def short(fingerprint: str) -> str:
    """Return as much of a fingerprint as distinguishes it."""
    return fingerprint[:8]


def why_stopped(event: LoopStopped) -> str:
    """Say why a guard ended the loop, in one line."""
    if event.reason == "repeat":
        tool = event.tool or "the same tool"
        return f"loop stopped: {tool} gave the same result {count(event.count, 'time')}"
    if event.reason == "limit":
        return f"stopped by limits.{event.limit} of agents.yaml"
    return f"loop stopped after {count(event.count, 'step')}, the limit of one run"


def _expired(event: AuthHop) -> bool:
    return event.source != "none" and event.expires_at is not None and event.expires_at < event.at
