"""The language of grants: what may be granted, to whom, and what one grant covers (SPEC AG-20)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pallas.model import Principal

GrantVerb = Literal["view", "create", "edit", "delete", "run", "admin"]

ANY: Final = "*"
_CHANGES: Final = ("view", "create", "edit", "delete")
VERBS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "agents": (*_CHANGES, "run"),
    "llms": _CHANGES,
    "secrets": _CHANGES,
    "projects": _CHANGES,
    "threads": ("admin",),
}
"""What can be done with each kind of thing. ``admin:threads`` is to read and delete those of others, with
``view:agents`` beside it (C27)."""
VERBS: Final = (*_CHANGES, "run", "admin")

ANONYMOUS: Final = "anonymous"
"""Whoever calls: what is granted here, those whose token is known may do as well."""
AUTHENTICATED: Final = "authenticated"
"""Everyone whose token was verified."""
CONTROL_FULL: Final = "control:full"
CONTROL_READ: Final = "control:read"
"""Who holds ``PALLAS_CONTROL_TOKEN`` or ``PALLAS_CONTROL_READ_TOKEN``: no rule changes what they may."""


def holds_control(principal: Principal) -> bool:
    """Whether who asks showed a token of the control API."""
    return principal.is_local or principal.id in (CONTROL_FULL, CONTROL_READ)


@dataclass(frozen=True, slots=True)
class Grant:
    """``verb:resource:name``; a part that is ``*`` covers all, and so does a name that is not there.

    Verbs are exact: who may edit may not view by that, and who may run one agent may run no other.
    """

    verb: str
    resource: str = ANY
    name: str = ANY

    def covers(self, verb: str, resource: str, name: str) -> bool:
        """Whether it allows that. Without a ``name`` all things of that kind are meant."""
        return self.verb in (ANY, verb) and self.resource in (ANY, resource) and self.name in (ANY, name)

    def __str__(self) -> str:
        parts = [self.verb, self.resource, self.name]
        while len(parts) > 1 and parts[-1] == ANY:
            del parts[-1]
        # `view` alone would be no grant that can be written.
        return ":".join([*parts, ANY] if len(parts) == 1 and parts != [ANY] else parts)


EVERYTHING: Final = (Grant(ANY),)
LOOKS: Final = (Grant("view"),)
WHERE_NOBODY_ASKS: Final = tuple(Grant(verb) for verb in (*_CHANGES, "run"))
"""What everyone may do where no rules are in force: all but what belongs to others."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Those named in ``to`` may do what is in ``allow``.

    ``to`` has ``token:NAME``, ``jwt:ISSUER:SUBJECT``, ``jwt:ISSUER:*``, ``authenticated`` and ``anonymous``.
    """

    to: tuple[str, ...]
    allow: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class RbacConfig:
    """``rbac:`` of a project. ``enabled`` is None where the project does not say.

    Then its rules hold wherever callers are asked who they are.
    """

    rules: tuple[Rule, ...] = ()
    enabled: bool | None = None
