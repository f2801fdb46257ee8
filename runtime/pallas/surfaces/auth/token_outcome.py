"""The outcomes of a token check."""

from dataclasses import dataclass

from pallas.model import Principal


@dataclass(frozen=True, slots=True)
class Verified:
    """The holder of a valid token, and the token's scopes.

    ``own`` marks the fleet itself, which may only list what its agents serve.
    """

    principal: Principal
    scopes: frozenset[str] = frozenset()
    own: bool = False


class TokenRefused(Exception):
    """The token is not accepted; the text gives the reason for the log and nothing of the token.

    ``guess`` is False for a real token that has expired or is not valid here.
    """

    def __init__(self, why: str, *, guess: bool = True) -> None:
        super().__init__(why)
        self.guess = guess


class Unavailable(Exception):
    """The token cannot be checked now; the text gives the reason for the log."""
