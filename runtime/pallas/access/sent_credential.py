"""Which credential a request to a server carries: the project's own, the caller's bearer, or none.

The one place that puts a caller's bearer into a request, for servers of agents and for remote agents.
"""

from collections.abc import Mapping
from typing import Final

import httpx2

from pallas.model import CredentialSource

from .bearer_lease import BearerLease

_NAMES: Final = frozenset({"authorization", "x-hf-authorization"})


class SentCredential:
    """The rule for requests to the server at ``url``.

    ``configured`` is the credential in the project's own headers, which takes precedence; empty if there is
    none. The caller's bearer is sent only with ``forward``, only during the caller's run, and only to the
    origin of the URL.
    """

    def __init__(self, url: str, configured: str, *, forward: bool) -> None:
        self._origin = _origin(httpx2.URL(url))
        self._configured = configured
        self._forward = forward

    def put(self, request: httpx2.Request, lease: BearerLease | None) -> tuple[str, CredentialSource]:
        """Leave in the request the credential that it may carry. Returns it and where it comes from."""
        if self._configured:
            return self._configured, "configured"
        # A redirect repeats the headers of the previous request.
        request.headers.pop("Authorization", None)
        bearer = lease.bearer if lease is not None else None
        if not self._forward or not bearer or _origin(request.url) != self._origin:
            return "", "none"
        request.headers["Authorization"] = f"Bearer {bearer}"
        return bearer, "forwarded"


def configured_credential(headers: Mapping[str, str]) -> str:
    """The credential in the headers that the project gives a server; empty if they have none."""
    given = (value for name, value in headers.items() if name.strip().lower() in _NAMES)
    value = next(given, "")
    return value.partition(" ")[2].strip() or value


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    default = {"http": 80, "https": 443}.get(url.scheme)
    return url.scheme, url.host, url.port or default
