"""What a token turned out to be."""

from dataclasses import dataclass

from pallas.model import Principal


@dataclass(frozen=True, slots=True)
class Verified:
    """Who showed a right token, and the scopes that it has.

    ``own`` is the fleet itself, which looks at its agents: it may list and do nothing else.
    """

    principal: Principal
    scopes: frozenset[str] = frozenset()
    own: bool = False


class TokenRefused(Exception):
    """The token is not taken; the text says why, for the log, and holds nothing of the token.

    ``guess`` is False for one that is real and no longer, or not here, right: nobody guessed that.
    """

    def __init__(self, why: str, *, guess: bool = True) -> None:
        super().__init__(why)
        self.guess = guess


class Unavailable(Exception):
    """Nobody can say now whether the token is right; the text says why, for the log."""
