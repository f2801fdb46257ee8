"""Who may do what (SPEC AG-20, C22, C27): one question, asked by every surface."""

from typing import Literal

from pallas.model import Principal

GrantVerb = Literal["view", "create", "edit", "delete", "run", "admin"]


class Grants:
    """What principals may do in one fleet. Belongs to its event loop."""

    @property
    def enforced(self) -> bool:
        """Whether anything is asked at all: off by default on loopback."""
        return False

    def allows(self, principal: Principal, verb: GrantVerb, resource: str, name: str = "") -> bool:
        """Whether ``principal`` may do it, for example ``run``, ``agents``, ``reviewer``."""
        return True

    def require(self, principal: Principal, verb: GrantVerb, resource: str, name: str = "") -> None:
        """Raises Fault (AUTH; unauthenticated or forbidden) that names the grant which is missing."""
