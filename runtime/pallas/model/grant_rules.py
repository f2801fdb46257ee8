"""The language of grants: verbs, resources, and what one grant covers (AG-20)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pallas.model import Principal

GrantVerb = Literal["view", "create", "edit", "delete", "run", "approve", "admin"]

ANY: Final = "*"
_CHANGES: Final = ("view", "create", "edit", "delete")
VERBS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "agents": (*_CHANGES, "run", "approve"),
    "llms": _CHANGES,
    "secrets": _CHANGES,
    "projects": _CHANGES,
    "threads": ("admin",),
}
"""The verbs of each kind of resource. ``admin:threads`` together with ``view:agents`` allows reading and
deleting the threads of others."""
VERBS: Final = (*_CHANGES, "run", "approve", "admin")

ANONYMOUS: Final = "anonymous"
"""All callers. Callers with a known token have the grants of this name too."""
AUTHENTICATED: Final = "authenticated"
"""All callers whose token was verified."""
CONTROL_FULL: Final = "control:full"
CONTROL_READ: Final = "control:read"
"""The holders of ``PALLAS_CONTROL_TOKEN`` and ``PALLAS_CONTROL_READ_TOKEN``.

No rule changes what they may do.
"""


def holds_control(principal: Principal) -> bool:
    """Whether the principal showed a token of the control API."""
    return principal.is_local or principal.id in (CONTROL_FULL, CONTROL_READ)


@dataclass(frozen=True, slots=True)
class Grant:
    """A grant ``verb:resource:name``. A ``*`` covers all, and so does a missing name.

    Verbs are exact: ``edit`` does not include ``view``, and ``run`` of one agent does not include another.
    """

    verb: str
    resource: str = ANY
    name: str = ANY

    def covers(self, verb: str, resource: str, name: str) -> bool:
        """Whether it allows the verb on the resource. An empty ``name`` means all resources of that kind."""
        return self.verb in (ANY, verb) and self.resource in (ANY, resource) and self.name in (ANY, name)

    def __str__(self) -> str:
        parts = [self.verb, self.resource, self.name]
        while len(parts) > 1 and parts[-1] == ANY:
            del parts[-1]
        # `view` alone is not a valid grant.
        return ":".join([*parts, ANY] if len(parts) == 1 and parts != [ANY] else parts)


EVERYTHING: Final = (Grant(ANY),)
LOOKS: Final = (Grant("view"),)
WHERE_NOBODY_ASKS: Final = tuple(Grant(verb) for verb in (*_CHANGES, "run"))
"""What everyone may do where no rules are in force: all but what belongs to others."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Grants for some principals."""

    # ``token:NAME``, ``jwt:ISSUER:SUBJECT``, ``jwt:ISSUER:*``, ``authenticated``, ``anonymous``
    to: tuple[str, ...]
    allow: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class RbacConfig:
    """The ``rbac:`` section of a project."""

    rules: tuple[Rule, ...] = ()
    enabled: bool | None = None  # None if not set: then the rules apply if callers are authenticated
