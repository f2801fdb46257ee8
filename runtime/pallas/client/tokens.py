"""Tokens to try, one after the other, when a fleet asks who is there."""

import os
from typing import Final

from pallas.model import Fault, FaultType

from .fleet_address import FleetAddress

CONTROL_VARIABLE: Final = "PALLAS_CONTROL_TOKEN"


class TokenCandidates:
    """The token in use, and what to use when it is refused.

    One that a person gave is the only one. Without it nothing is sent at first; a fleet on loopback that asks
    gets what it was started with, where a project's folder says that (``PALLAS_CONTROL_TOKEN``), and what it
    keeps in a file that only this user can read. Neither is ever sent to another machine. One that is given
    is merely the first where it is not the ``sole`` one.
    """

    def __init__(self, place: FleetAddress, given: str = "", *, sole: bool = True) -> None:
        self._place = place
        self._given = given if sole else ""
        self._left: list[str] | None = None
        self.token = given

    def __repr__(self) -> str:
        return "Tokens()"

    def next(self, refused: str) -> bool:
        """Whether there is another one to try than ``refused``, which is then in use. Raises Fault (CONFIG).

        Of several requests at once that were refused, the first moves on, the others follow.
        """
        if self._given or not self._place.is_loopback:
            return False
        if self.token != refused:
            return True
        if self._left is None:
            from pallas.surfaces.control.token_file import TokenFileExposed, find_tokens

            mine = os.environ.get(CONTROL_VARIABLE, "").strip() if self._place.project is not None else ""
            try:
                self._left = [mine] if mine.isascii() and mine.isprintable() and mine else []
                self._left += [each.token for each in find_tokens(self._place.port) if each.token]
            except TokenFileExposed as error:
                raise Fault(FaultType.CONFIG, str(error)) from error
            except OSError:
                pass  # there is no such folder, or it cannot be read
        if not self._left:
            return False
        self.token = self._left.pop(0)
        return True

    def advice(self, refused: Fault) -> str:
        """What to do when none was accepted, behind what the fleet said itself."""
        if refused.data.get("closed"):
            return ""  # there is none that it would know
        if self._given:
            return "; the token that was given (--token, PALLAS_TOKEN) is not one that this fleet knows"
        more = ", or PALLAS_CONTROL_TOKEN in .env of its project" if self._place.is_loopback else ""
        return f"; give one that it knows with --token or in PALLAS_TOKEN{more}"
