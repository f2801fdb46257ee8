"""The caller's bearer, lent to one run for downstreams that opted in; all others see a fingerprint.

Nothing here is shared: a run has its own ``BearerLease``, an instance its own ``LeaseSlot``, and code that
sends a request finds them in the context it runs in.
"""

import base64
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, Final, NamedTuple

from pallas.model import AuthHop, CredentialSource
from pallas.model.fingerprint import fingerprint
from pallas.safe_text import one_line

log = logging.getLogger(__name__)
# Limits on the claims that are read: the author of a token is not trusted.
_MAX_JWT: Final = 16_384
_MAX_AUDIENCE: Final = 5
_MAX_SCOPES: Final = 20
_MAX_CLAIM: Final = 100


class Claims(NamedTuple):
    """The claims of a token that are shown, unverified; the expiry in Unix seconds."""

    audience: tuple[str, ...] = ()
    expires_at: float | None = None
    subject: str = ""
    issuer: str = ""
    scope: str = ""


def claims_of(token: str) -> Claims:
    """The claims of a JWT; nothing for any other token. Never raises."""
    body = payload_of(token)
    named = body.get("aud")
    audience = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    expires = body.get("exp")
    if isinstance(expires, bool):
        expires = None
    scope = body.get("scope", body.get("scp"))
    if isinstance(scope, list):
        scope = " ".join(each for each in scope[:_MAX_SCOPES] if isinstance(each, str))
    subject, issuer, scope = (
        one_line(each, _MAX_CLAIM) if isinstance(each, str) else ""
        for each in (body.get("sub"), body.get("iss"), scope)
    )
    return Claims(
        tuple(one_line(each, _MAX_CLAIM) for each in audience[:_MAX_AUDIENCE] if isinstance(each, str)),
        float(expires) if isinstance(expires, int | float) and 0 < expires < 1e12 else None,
        subject,
        issuer,
        scope,
    )


def payload_of(token: str) -> dict[str, Any]:
    """All claims of a JWT, unverified; empty for any other token. Never raises."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > _MAX_JWT:
        return {}
    try:
        body = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


class BearerLease:
    """The caller's token while its run lasts.

    ``revoke`` removes it, also for code that still holds the lease.

    ``emit`` gets an ``AuthHop`` for each request of the run, as long as the run lasts.
    """

    def __init__(self, run_id: str, agent: str, bearer: str | None, emit: Any) -> None:
        self._run_id = run_id
        self._agent = agent
        self._bearer = bearer
        self._emit = emit

    def __repr__(self) -> str:
        return f"BearerLease(run {self._run_id}, {'ended' if self._emit is None else 'live'})"

    @property
    def live(self) -> bool:
        """Whether the run is still going on."""
        return self._emit is not None

    @property
    def bearer(self) -> str | None:
        """The caller's token; None if it sent none or the run is over."""
        return self._bearer

    def revoke(self) -> None:
        """Forget the token and report nothing more, because the run is over."""
        self._bearer = self._emit = None

    def report(
        self,
        downstream: str,
        source: CredentialSource,
        credential: str,
        status: int | None,
        method: str,
        tool: str = "",
        variable: str = "",
    ) -> None:
        """Publish one request. ``credential`` is reduced to a fingerprint and claims here.

        ``variable`` is the one that a configured credential was read from.
        """
        if self._emit is None:
            return
        claims = claims_of(credential) if credential else Claims()
        hop = AuthHop(
            run_id=self._run_id,
            agent=self._agent,
            downstream=downstream,
            source=source,
            fingerprint=fingerprint(credential) if credential else "",
            audience=claims.audience,
            subject=claims.subject,
            issuer=claims.issuer,
            scope=claims.scope,
            expires_at=claims.expires_at,
            variable=variable if source == "configured" else "",
            status=status,
            method=one_line(method, 60),
            tool=one_line(tool, 100),
        )
        _log(hop)
        self._emit(hop)


def _log(hop: AuthHop) -> None:
    refused = hop.status in (401, 403)
    log.log(
        logging.WARNING if refused else logging.DEBUG,
        "%s -> %s: %s %s credential, HTTP %s",
        hop.agent,
        hop.downstream,
        hop.method or "request",
        f"{hop.source} {hop.fingerprint}".strip() if hop.source != "none" else "no",
        hop.status or "no answer",
        extra={"agent": hop.agent, "run_id": hop.run_id, "downstream": hop.downstream},
    )


class LeaseSlot:
    """The lease of the run that uses an instance's connections now.

    A connection's opening, pings and end happen in tasks that outlive the run which started them. They find
    the slot in their context, and in it the lease of the run that holds the instance, or none. ``refused``
    has the HTTP status (401 or 403) by downstream, to explain a failure.
    """

    def __init__(self, lease: BearerLease | None = None) -> None:
        self.lease = lease
        self.refused: dict[str, tuple[int, CredentialSource]] = {}


_lease: ContextVar[BearerLease | None] = ContextVar("pallas_bearer_lease", default=None)
_slot: ContextVar[LeaseSlot | None] = ContextVar("pallas_slot", default=None)


def current_lease() -> BearerLease | None:
    """The live lease for this code: its own run's, else that of its connection's user."""
    own = _lease.get()
    if own is not None and own.live:
        return own
    slot = _slot.get()
    lent = slot.lease if slot is not None else None
    return lent if lent is not None and lent.live else None


def current_slot() -> LeaseSlot | None:
    """The slot of the instance whose connection this code serves."""
    return _slot.get()


@contextmanager
def connecting(slot: LeaseSlot) -> Iterator[None]:
    """Bind what starts in this block to the instance of ``slot`` for as long as it lives."""
    token = _slot.set(slot)
    try:
        yield
    finally:
        _slot.reset(token)


def context_of(slot: LeaseSlot) -> Context:
    """An empty context bound to the instance of ``slot`` and to no request."""
    context = Context()
    context.run(_slot.set, slot)
    return context


@contextmanager
def lending(lease: BearerLease, slot: LeaseSlot) -> Iterator[None]:
    """Lend ``lease`` to the run and the slot in this block; at the end it is revoked."""
    own, held = _lease.set(lease), _slot.set(slot)
    slot.lease = lease
    try:
        yield
    finally:
        lease.revoke()
        slot.lease = None
        _slot.reset(held)
        _lease.reset(own)
