"""Decides what a principal may do, for every surface (AG-20)."""

import logging
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pallas.model import Fault, Principal, refusals
from pallas.model.fingerprint import salt, subject_id
from pallas.model.grant_rules import (
    ANONYMOUS,
    ANY,
    AUTHENTICATED,
    CONTROL_FULL,
    CONTROL_READ,
    EVERYTHING,
    LOOKS,
    WHERE_NOBODY_ASKS,
    Grant,
    RbacConfig,
)
from pallas.model.grant_rules import GrantVerb as GrantVerb
from pallas.safe_text import one_line

if TYPE_CHECKING:
    from pallas.config.models import Project

log = logging.getLogger("pallas.audit")

DENIED: Final = "denied"
CHANGED: Final = "changed"
"""Values of ``audit`` in records of the audit log."""
_KNOWN: Final = 4_096
_NO_ISSUERS: Final[Mapping[str, str]] = MappingProxyType({})


class Grants:
    """The permissions of principals in one fleet. Belongs to its event loop.

    ``dev`` and ``loopback`` say how the fleet is served. ``admits`` says whether an agent's own ``auth:``
    lets a caller use it, regardless of grants. The rules are those of the project's files when they were last
    read without a mistake (``adopt``).
    """

    def __init__(
        self,
        *,
        dev: bool = False,
        loopback: bool = True,
        admits: Callable[[str, Principal], bool] = lambda agent, principal: True,
    ) -> None:
        self._dev = dev
        self._loopback = loopback
        self._admits = admits
        self._rbac: RbacConfig | None = None
        self._ruled = False
        self._issuers = _NO_ISSUERS
        # A cache by principal and salt, since the fingerprint of a principal depends on the salt.
        self._found: dict[tuple[str, bytes], tuple[Grant, ...]] = {}

    def adopt(self, project: "Project") -> None:
        """Take over the rules of a project that was read again."""
        auth = project.auth
        self._rbac = project.rbac
        self._ruled = rules_hold(project, dev=self._dev, loopback=self._loopback)
        self._issuers = {name: each.issuer for name, each in auth.issuers.items()} if auth else _NO_ISSUERS
        self._found.clear()

    @property
    def ruled(self) -> bool:
        """Whether the rules of ``rbac:`` apply, on ``/api/v1`` and to callers that run an agent over MCP."""
        return self._ruled

    @property
    def off_here(self) -> bool:
        """Whether the project has rules that do not apply to this fleet, but would elsewhere."""
        return self._rbac is not None and self._rbac.enabled is None and not self._ruled

    @property
    def enforced(self) -> bool:
        """Whether ``/api/v1`` checks permissions at all; by default not on loopback.

        Beyond loopback, without rules, only the tokens of the control API are accepted there, and the user
        who started the fleet, with the permissions that every caller has on loopback.
        """
        return self._ruled or not self._loopback

    def allows(self, principal: Principal, verb: GrantVerb, resource: str, name: str = "") -> bool:
        """Whether ``principal`` may do it, for example ``run``, ``agents``, ``reviewer``.

        An empty ``name`` means all resources of that kind. ``admin`` is never granted by rules being off.
        """
        if not any(grant.covers(verb, resource, name) for grant in self._of(principal)):
            return False
        return self._lets_in(principal, verb, resource, name)

    def may_run(self, principal: Principal, agent: str) -> bool:
        """Whether ``principal`` may run the agent over MCP, where nothing is checked unless there are
        rules.
        """
        if self._ruled:
            return self.allows(principal, "run", "agents", agent)
        return self._lets_in(principal, "run", "agents", agent)

    def may_approve_some(self, principal: Principal) -> bool:
        """Whether ``principal`` may answer questions of some agents that are asked of others."""
        return any(grant.verb in ("approve", ANY) for grant in self._of(principal))

    def require(self, principal: Principal, verb: GrantVerb, resource: str, name: str = "") -> None:
        """Raise Fault (AUTH; unauthenticated or forbidden) that names the missing grant, and write it to the
        audit log.
        """
        if not self.allows(principal, verb, resource, name):
            raise self._denied(principal, verb, resource, name)

    def require_run(self, principal: Principal, agent: str) -> None:
        """As ``require`` for ``run:agents:<agent>`` over MCP (``may_run``)."""
        if not self.may_run(principal, agent):
            raise self._denied(principal, "run", "agents", agent)

    def require_known(self, principal: Principal) -> None:
        """Raise Fault (AUTH, unauthenticated) if permissions are checked and the caller is not known.

        For lists of a caller's own things: all unknown callers are one principal.
        """
        if self.enforced and not principal.name and not principal.is_local:
            raise refusals.unauthenticated(
                "the caller is not known, so no thread or run is known to belong to them; send a "
                "bearer token in the "
                "Authorization header"
            )

    def describe(self, principal: Principal) -> list[str]:
        """The grants of ``principal``, sorted, as written in ``rbac:``."""
        return sorted({str(grant) for grant in self._of(principal)})

    def _of(self, principal: Principal) -> tuple[Grant, ...]:
        if principal.id == CONTROL_FULL:
            return EVERYTHING
        if principal.id == CONTROL_READ:
            return LOOKS
        if not self.enforced or (principal.is_local and not self._ruled):
            return WHERE_NOBODY_ASKS
        if not self._ruled or self._rbac is None:
            return ()
        key = (principal.id, salt())
        if (known := self._found.get(key)) is None:
            if len(self._found) >= _KNOWN:
                self._found.clear()
            known = self._found[key] = self._by_rules(self._rbac, principal)
        return known

    def _by_rules(self, rbac: RbacConfig, principal: Principal) -> tuple[Grant, ...]:
        names = set(self._names(principal))
        meant = (
            rule
            for rule in rbac.rules
            if any(to in names or self._is_subject(to, principal) for to in rule.to)
        )
        return tuple(dict.fromkeys(grant for rule in meant for grant in rule.allow))

    @staticmethod
    def _names(principal: Principal) -> Iterator[str]:
        """Yield the names by which ``to`` of a rule can mean this principal."""
        yield ANONYMOUS
        if not principal.name:  # its bearer was not verified
            return
        yield AUTHENTICATED
        yield principal.id
        kind, _, rest = principal.id.partition(":")
        if kind == "jwt":
            yield f"jwt:{rest.rpartition(':')[0]}:*"

    def _is_subject(self, to: str, principal: Principal) -> bool:
        """Whether ``jwt:ISSUER:SUBJECT`` is this principal, of which only a fingerprint is known."""
        kind, _, rest = to.partition(":")
        issuer, _, subject = rest.partition(":")
        if kind != "jwt" or issuer not in self._issuers or not principal.id.startswith(f"jwt:{issuer}:"):
            return False
        return subject_id(issuer, self._issuers[issuer], subject) == principal.id

    def _lets_in(self, principal: Principal, verb: str, resource: str, name: str) -> bool:
        if verb != "run" or resource != "agents" or not name or principal.id == CONTROL_FULL:
            return True
        return self._admits(name, principal)

    def _denied(self, principal: Principal, verb: GrantVerb, resource: str, name: str) -> Fault:
        _audit(principal, verb, resource, name)
        needed = str(Grant(verb, resource, one_line(name, 100) or "*"))
        if not self._ruled:
            if self.enforced:
                fix = (
                    "this fleet listens beyond loopback and agents.yaml has no rbac: with permissions: "
                    "use the token of PALLAS_CONTROL_TOKEN, or write rbac:"
                )
            else:
                fix = (
                    "auth: of that agent does not accept this caller"
                    if verb == "run"
                    else "no rule grants it"
                )
        elif any(grant.covers(verb, resource, name) for grant in self._of(principal)):
            fix = "auth: of that agent does not accept this caller"
        else:
            fix = "rbac: in agents.yaml lists who has it"
        if principal.name:
            return refusals.forbidden(f"{principal.name} lacks the grant {needed}; {fix}", grant=needed)
        return refusals.unauthenticated(
            f"this needs the grant {needed}, and the caller is not known: send a token as a bearer in the "
            f"Authorization header; {fix}",
            grant=needed,
        )


def rules_hold(project: "Project", *, dev: bool, loopback: bool) -> bool:
    """Whether ``rbac:`` applies to this fleet.

    It does wherever it is written, unless it says ``enabled: false``. Exception: ``pallas dev`` on loopback
    does not authenticate callers unless ``auth:`` says ``dev: true``; then it checks no grants either, unless
    ``rbac:`` says ``enabled: true``.
    """
    rbac, auth = project.rbac, project.auth
    if rbac is None or rbac.enabled is False:
        return False
    unasked = dev and loopback and auth is not None and not auth.dev
    return rbac.enabled is True or not unasked


def _audit(principal: Principal, verb: str, resource: str, name: str) -> None:
    """Write one record. The caller is named by id, never by a token; ``target`` is the resource's name."""
    target = one_line(name, 200)
    log.warning(
        "%s: %s %s by %s",
        DENIED,
        verb,
        f"{resource}/{target}" if target else resource,
        principal.name or principal.id,
        extra={
            "audit": DENIED,
            "principal": principal.id,
            "verb": verb,
            "resource": resource,
            "target": target,
        },
    )
