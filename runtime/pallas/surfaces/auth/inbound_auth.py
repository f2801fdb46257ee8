"""Authentication state that all agents of one fleet share."""

import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Any, Final

from pallas.access.grants import Grants
from pallas.config.auth import AuthConfig, IssuerConfig, in_force
from pallas.config.models import Project
from pallas.model import Fault, FaultType, Principal, TraceContext
from pallas.model.fingerprint import fingerprint, subject_id
from pallas.model.grant_rules import CONTROL_FULL
from pallas.model.redaction import forget, name_tokens, redact
from pallas.safe_text import one_line
from pallas.surfaces.token_attempts import Attempts

from .auth_challenge import MISSING
from .static_tokens import MAX_TOKEN, find_token
from .token_outcome import TokenRefused, Verified

if TYPE_CHECKING:  # cryptography is imported by a fleet that has issuers
    from .issuer_keys import KeySet

OWN: Final = "fleet"
_MAX_SETS: Final = 64

if TYPE_CHECKING:
    from pallas.surfaces.parked_calls import ParkedCalls
    from pallas.surfaces.session_seal import SessionSeal

log = logging.getLogger(__name__)

_WELCOME: Final = 4_096
_NOBODY: Final = AuthConfig(public_health=False)
FLEET: Final = ""
"""Used in place of an agent's name: the rules for callers of the fleet as a whole."""


class Verifier:
    """Checks tokens for all agents of one fleet. Belongs to the fleet's event loop.

    The accepted tokens are looked up in the configuration at each call, so changes need no notification.
    ``own`` is a token of the fleet itself, made here unless it is given: the fleet uses it to list what its
    agents serve.
    """

    def __init__(self, clock: Callable[[], float] = time, *, own: str = "") -> None:
        self._clock = clock
        self.own = own or secrets.token_urlsafe(32)
        self._sets: OrderedDict[str, KeySet] = OrderedDict()

    def __repr__(self) -> str:
        return f"Verifier({len(self._sets)} key sets)"

    async def verify(self, auth: AuthConfig, token: str) -> Verified:
        """Return the holder of ``token``. Raises TokenRefused, Unavailable."""
        if len(token) > MAX_TOKEN:
            raise TokenRefused(f"it has more than {MAX_TOKEN} characters")
        if hmac.compare_digest(self.own.encode(), token.encode("utf-8", "replace")):
            return Verified(Principal(OWN, fingerprint(token)), own=True)
        known = find_token(auth.tokens.values(), token, self._clock())
        if known is not None:
            scopes = frozenset(known.scopes)
            return Verified(Principal(f"token:{known.name}", fingerprint(token), scopes), scopes)
        if not auth.issuers or token.count(".") != 2:
            raise TokenRefused("no caller has this token")
        from .jwt import claims_of, scopes_of

        issuer, claims = await claims_of(token, auth.issuers.values(), self._key)
        principal = subject_id(issuer.name, issuer.issuer, claims["sub"])
        scopes = scopes_of(claims)
        return Verified(Principal(principal, fingerprint(token), scopes), scopes)

    def close(self) -> None:
        """Cancel pending fetches."""
        for keys in self._sets.values():
            keys.close()

    async def _key(self, issuer: IssuerConfig, kid: str | None, algorithm: str) -> Any:
        if issuer.secret:
            return issuer.secret.encode()
        if issuer.pem:
            return issuer.pem
        from .issuer_keys import KeySet

        keys = self._sets.get(issuer.jwks_url)
        if keys is None:
            keys = self._sets[issuer.jwks_url] = KeySet(issuer.jwks_url)
            if len(self._sets) > _MAX_SETS:
                self._sets.popitem(last=False)[1].close()
        return await keys.find(kid, algorithm)


class Inbound:
    """The verifier and the failed attempts per address. Belongs to the fleet's event loop.

    ``dev`` and ``loopback`` describe where the fleet listens. An address with too many wrong tokens has to
    wait, and so has a valid token that comes from there for the first time: a lucky guess must not pass. A
    caller that was let in from there before continues, since many callers may share the address of a proxy.

    The rules are those of the last valid read of the project's files: a version of an agent that is rolled
    back, or does not become ready, changes nothing here.

    ``grants`` says which caller may run which agent. ``is_run_call`` says whether a call with some span comes
    from a run in flight: such a call needs no grant, since a caller that may run an agent may have it do
    its work. ``session_seal`` and ``own_token`` are what the worker processes of a project share.
    """

    def __init__(
        self,
        *,
        dev: bool,
        loopback: bool,
        attempts: Attempts | None = None,
        is_run_call: Callable[[str, TraceContext | None], bool] = lambda agent, trace: False,
        session_seal: "SessionSeal | None" = None,
        own_token: str = "",
    ) -> None:
        self.session_seal = session_seal
        self.parked: Callable[[], ParkedCalls | None] = lambda: None
        """Parks calls whose runs wait for a person."""
        self.verifier = Verifier(own=own_token)
        self.grants = Grants(dev=dev, loopback=loopback, admits=self.admits)
        self._is_run_call = is_run_call
        self._anywhere = False
        redact(self.verifier.own)
        self._dev = dev
        self._loopback = loopback
        self._attempts = attempts or Attempts()
        self._welcome: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._rules: dict[str, AuthConfig | None] = {}

    def adopt(self, project: Project) -> None:
        """Use the rules of a project that was just read, from the next request on."""
        self._rules |= {name: agent.auth for name, agent in project.agents.items()}
        self._rules[FLEET] = project.auth
        name_tokens(project.auth.tokens if project.auth is not None else ())
        if project.auth is not None:
            redact(*(issuer.secret for issuer in project.auth.issuers.values()))
        # If grants are required in any case, so is the identity of their holder.
        self._anywhere = project.rbac is not None and project.rbac.enabled is True
        self.grants.adopt(project)

    def introduce(self, agent: str, auth: AuthConfig | None) -> None:
        """Register the rules for callers of an agent that is about to be served."""
        self._rules[agent] = auth

    def auth_of(self, agent: str) -> AuthConfig | None:
        """Return the agent's auth rules now; None if no token is required.

        An unknown agent admits no caller.
        """
        dev = self._dev and not self._anywhere
        return in_force(self._rules.get(agent, _NOBODY), dev=dev, loopback=self._loopback)

    def admits(self, agent: str, principal: Principal) -> bool:
        """Return whether the agent's own ``auth:`` accepts a caller that was let in at the fleet's port.

        A holder of the control token may use all agents.
        """
        auth = self.auth_of(agent) if agent in self._rules else None
        if auth is None or principal.id == CONTROL_FULL:
            return True
        kind, _, rest = principal.id.partition(":")
        known = rest in auth.tokens if kind == "token" else rest.rpartition(":")[0] in auth.issuers
        return kind in ("token", "jwt") and known and principal.scopes.issuperset(auth.scopes)

    async def authorize(self, agent: str, tool: str, principal: Principal) -> None:
        """Check the caller again before a tool or prompt is used, after everything that reads the request.

        Raises Fault (AUTH) for a caller that the gate has not verified: it should not have come this far.
        """
        if self.auth_of(agent) is not None and (not principal.name or principal.id == OWN):
            log.error("%s: %s was requested behind the gate, without a token", agent, one_line(tool, 80))
            raise Fault(FaultType.AUTH, MISSING)

    def permit(self, agent: str, principal: Principal, trace: TraceContext | None = None) -> None:
        """Check the caller's grants before a tool or prompt of the agent is used, on any surface.

        Raises Fault (AUTH) for a caller without ``run:agents:<agent>`` if the project has grant rules,
        except for a call that a run in flight makes, as ``trace`` shows. Raises it in any case for a caller
        that the agent's own ``auth:`` does not accept.
        """
        auth = self.grants.ruled and self.admits(agent, principal) and self._is_run_call(agent, trace)
        if not auth:
            self.grants.require_run(principal, agent)

    def own_token(self, agent: str) -> str | None:
        """Return the token with which the fleet lists its own agent's tools; None if no token is required."""
        return self.verifier.own if self.auth_of(agent) is not None else None

    def off_here(self) -> bool:
        """Return whether some agent requires tokens elsewhere, but none does where the fleet listens."""
        written = any(auth is not None and not auth.off for auth in self._rules.values())
        return written and not any(self.auth_of(agent) for agent in self._rules)

    def wait(self, address: str, principal: str = "") -> float:
        """Return the seconds until that address, or that caller at it, may try again; 0 if it may now."""
        seconds = self._attempts.wait(address)
        return 0.0 if seconds > 0 and (address, principal) in self._welcome else seconds

    def failed(self, address: str) -> None:
        """Record a wrong token."""
        self._attempts.failed(address)

    def came(self, address: str, principal: str) -> None:
        """Record a caller that was let in."""
        key = (address, principal)
        self._welcome[key] = None
        self._welcome.move_to_end(key)
        if len(self._welcome) > _WELCOME:
            self._welcome.popitem(last=False)

    def close(self) -> None:
        """Cancel pending fetches and forget the fleet's own token."""
        self.verifier.close()
        forget(self.verifier.own)
