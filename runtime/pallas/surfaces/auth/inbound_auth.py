"""What the agents of one fleet share when they ask callers who they are."""

import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from time import time
from typing import Any, Final

from pallas.access.grants import Grants
from pallas.config.auth import AuthConfig, IssuerConfig, in_force
from pallas.config.models import Project
from pallas.model import Fault, FaultType, Principal, TraceContext
from pallas.model.fingerprint import fingerprint, subject_id
from pallas.model.grant_rules import CONTROL_FULL
from pallas.model.redaction import forget, name_tokens, redact
from pallas.model.safe_text import one_line
from pallas.surfaces.token_attempts import Attempts

from .auth_challenge import MISSING
from .issuer_keys import KeySet
from .jwt import claims_of, looks_like_jwt, scopes_of
from .static_tokens import MAX_TOKEN, find_token
from .token_outcome import TokenRefused, Verified

OWN: Final = "fleet"
_MAX_SETS: Final = 64


class Verifier:
    """Checks tokens for all agents of one fleet. Belongs to its event loop.

    What is taken is asked of the configuration at each call, so nothing has to be told of a change. ``own``
    is a token of the fleet itself, made anew for each: with it the fleet lists what its agents serve.
    """

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self.own = secrets.token_urlsafe(32)
        self._sets: OrderedDict[str, KeySet] = OrderedDict()

    def __repr__(self) -> str:
        return f"Verifier({len(self._sets)} key sets)"

    async def verify(self, auth: AuthConfig, token: str) -> Verified:
        """Who holds ``token``. Raises Refused, Unavailable."""
        if len(token) > MAX_TOKEN:
            raise TokenRefused(f"it has more than {MAX_TOKEN} characters")
        if hmac.compare_digest(self.own.encode(), token.encode("utf-8", "replace")):
            return Verified(Principal(OWN, fingerprint(token)), own=True)
        known = find_token(auth.tokens.values(), token, self._clock())
        if known is not None:
            scopes = frozenset(known.scopes)
            return Verified(Principal(f"token:{known.name}", fingerprint(token), scopes), scopes)
        if not auth.issuers or not looks_like_jwt(token):
            raise TokenRefused("nobody has such a token")
        issuer, claims = await claims_of(token, auth.issuers.values(), self._key)
        who = subject_id(issuer.name, issuer.issuer, claims["sub"])
        scopes = scopes_of(claims)
        return Verified(Principal(who, fingerprint(token), scopes), scopes)

    def close(self) -> None:
        """Give up what is being fetched."""
        for keys in self._sets.values():
            keys.close()

    async def _key(self, issuer: IssuerConfig, kid: str | None, algorithm: str) -> Any:
        if issuer.secret:
            return issuer.secret.encode()
        if issuer.pem:
            return issuer.pem
        keys = self._sets.get(issuer.jwks_url)
        if keys is None:
            keys = self._sets[issuer.jwks_url] = KeySet(issuer.jwks_url)
            if len(self._sets) > _MAX_SETS:
                self._sets.popitem(last=False)[1].close()
        return await keys.find(kid, algorithm)


log = logging.getLogger(__name__)

_WELCOME: Final = 4_096
_NOBODY: Final = AuthConfig(public_health=False)
FLEET: Final = ""
"""In place of an agent's name: what is asked of those who come to the fleet as a whole."""


class Inbound:
    """The verifier, and who tried what from where. Belongs to the fleet's event loop.

    ``dev`` and ``loopback`` say where the fleet stands. An address with too many wrong tokens has to wait,
    and with it a right token that comes from there for the first time: a guess that is right is none. A
    caller that was let in from there before goes on, since many may share the address of a proxy.

    What is asked is what the project's files said when they were last read without a mistake: a version of an
    agent that is rolled back, or one that does not get ready, changes nothing here.

    ``grants`` says who of those may run which agent. ``asked_for`` says whether a call of an agent that came
    with some span is what a run in flight asks of it: then nobody is asked for a grant, since whoever may run
    an agent may have it do its work.
    """

    def __init__(
        self,
        *,
        dev: bool,
        loopback: bool,
        attempts: Attempts | None = None,
        asked_for: Callable[[str, TraceContext | None], bool] = lambda agent, trace: False,
    ) -> None:
        self.verifier = Verifier()
        self.grants = Grants(dev=dev, loopback=loopback, admits=self.admits)
        self._asked_for = asked_for
        self._anywhere = False
        redact(self.verifier.own)
        self._dev = dev
        self._loopback = loopback
        self._attempts = attempts or Attempts()
        self._welcome: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._rules: dict[str, AuthConfig | None] = {}

    def adopt(self, project: Project) -> None:
        """The project was read anew: its rules hold from the next request on."""
        self._rules |= {name: agent.auth for name, agent in project.agents.items()}
        self._rules[FLEET] = project.auth
        name_tokens(project.auth.tokens if project.auth is not None else ())
        if project.auth is not None:
            redact(*(issuer.secret for issuer in project.auth.issuers.values()))
        # Where grants are asked for in any case, so is who it is that has them.
        self._anywhere = project.rbac is not None and project.rbac.enabled is True
        self.grants.adopt(project)

    def introduce(self, agent: str, auth: AuthConfig | None) -> None:
        """An agent is about to be served, and this is asked of its callers."""
        self._rules[agent] = auth

    def asked(self, agent: str) -> AuthConfig | None:
        """What is asked of the agent's callers now; None where nobody is asked.

        Nobody gets through to one of which nothing is known.
        """
        dev = self._dev and not self._anywhere
        return in_force(self._rules.get(agent, _NOBODY), dev=dev, loopback=self._loopback)

    def admits(self, agent: str, principal: Principal) -> bool:
        """Whether the agent's own ``auth:`` takes a caller who was let in elsewhere: at the fleet's port.

        Whoever holds the control token may use all of them.
        """
        auth = self.asked(agent) if agent in self._rules else None
        if auth is None or principal.id == CONTROL_FULL:
            return True
        kind, _, rest = principal.id.partition(":")
        known = rest in auth.tokens if kind == "token" else rest.rpartition(":")[0] in auth.issuers
        return kind in ("token", "jwt") and known and principal.scopes.issuperset(auth.scopes)

    async def authorize(self, agent: str, tool: str, principal: Principal) -> None:
        """Asked once more before a tool or prompt of the agent is used, behind all that reads the request.

        Raises Fault (AUTH) for whom the gate has not verified: it should not have come so far.
        """
        if self.asked(agent) is not None and (not principal.name or principal.id == OWN):
            log.error("%s: %s was asked for behind the gate, without a token", agent, one_line(tool, 80))
            raise Fault(FaultType.AUTH, MISSING)

    def permit(self, agent: str, principal: Principal, trace: TraceContext | None = None) -> None:
        """Asked before a tool or prompt of the agent is used, wherever that is served.

        Raises Fault (AUTH) for who lacks ``run:agents:<agent>`` where the project has rules of grants, but
        not for what a run in flight asks of this agent, as ``trace`` shows. For whom the agent's own
        ``auth:`` does not take in any case.
        """
        asked = self.grants.ruled and self.admits(agent, principal) and self._asked_for(agent, trace)
        if not asked:
            self.grants.require_run(principal, agent)

    def own_token(self, agent: str) -> str | None:
        """What the fleet shows its own agent in order to list its tools; None where nobody is asked."""
        return self.verifier.own if self.asked(agent) is not None else None

    def off_here(self) -> bool:
        """Whether some agent would ask elsewhere, and none does where the fleet stands."""
        written = any(auth is not None and not auth.off for auth in self._rules.values())
        return written and not any(self.asked(agent) for agent in self._rules)

    def wait(self, address: str, principal: str = "") -> float:
        """Seconds until that address, or that caller at it, may come again; 0 when it may now."""
        seconds = self._attempts.wait(address)
        return 0.0 if seconds > 0 and (address, principal) in self._welcome else seconds

    def failed(self, address: str) -> None:
        """A token was guessed, and wrong."""
        self._attempts.failed(address)

    def came(self, address: str, principal: str) -> None:
        """A caller was let in."""
        key = (address, principal)
        self._welcome[key] = None
        self._welcome.move_to_end(key)
        if len(self._welcome) > _WELCOME:
            self._welcome.popitem(last=False)

    def close(self) -> None:
        """Give up what is being fetched, and forget the fleet's own token."""
        self.verifier.close()
        forget(self.verifier.own)
