"""Tokens to try, one after the other, when a fleet asks who is there."""

from pallas.model import Fault, FaultType

from .place import Place


class Tokens:
    """The token in use, and what to use when it is refused.

    One that a person gave is the only one. Without it nothing is sent at first; a fleet on loopback that asks
    gets what it keeps in a file that only this user can read. That is never sent to another machine. One that
    is given is merely the first where it is not the ``sole`` one.
    """

    def __init__(self, place: Place, given: str = "", *, sole: bool = True) -> None:
        self._place = place
        self._given = given if sole else ""
        self._left: list[str] | None = None
        self.token = given

    def __repr__(self) -> str:
        return "Tokens()"

    def next(self) -> bool:
        """Whether there is another one to try, which is then in use. Raises Fault (CONFIG)."""
        if self._given or not self._place.is_loopback:
            return False
        if self._left is None:
            from pallas.surfaces.control.token_file import NotPrivate, find

            try:
                self._left = [each.token for each in find(self._place.port) if each.token]
            except NotPrivate as error:
                raise Fault(FaultType.CONFIG, str(error)) from error
            except OSError:
                self._left = []
        if not self._left:
            return False
        self.token = self._left.pop(0)
        return True

    def advice(self) -> str:
        """What to do when none was accepted."""
        if self._given:
            return "; the token that was given (--token, PALLAS_TOKEN) is not one that this fleet knows"
        return "; give one that it knows with --token or in PALLAS_TOKEN"
