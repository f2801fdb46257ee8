"""The credential of each request to the other side, and the outcome.

The rule is that of downstreams (``SentCredential``). The SDK sends each message in the context of its
caller, which holds the run's bearer lease.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import httpx2

from pallas.access.bearer_lease import current_lease
from pallas.access.sent_credential import SentCredential, configured_credential
from pallas.model import CredentialSource
from pallas.telemetry import wire_http

_MAX_WAIT: Final = 3_600.0


class Noted:
    """The newest answer to a message of this call: its HTTP status, 0 without one, and the credential
    sent."""

    def __init__(self) -> None:
        self.status = 0
        self.source: CredentialSource = "none"
        self.retry_after: float | None = None


_noted: ContextVar[Noted | None] = ContextVar("pallas_remote_noted", default=None)


@contextmanager
def noting() -> Iterator[Noted]:
    """Note the answers to requests made in this block."""
    noted = Noted()
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


class RemoteAuth(httpx2.Auth):
    """The credentials of one connection to ``url`` of the agent ``name``. ``session`` is the MCP session
    that it opened.
    """

    def __init__(
        self, name: str, url: str, headers: Mapping[str, str], *, forward: bool, variable: str = ""
    ) -> None:
        self.name = name
        self._rule = SentCredential(url, configured_credential(headers), forward=forward)
        self._variable = variable
        self.session = ""

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send one request and report its outcome."""
        lease, noted = current_lease(), _noted.get()
        credential, source = self._rule.put(request, lease)
        if noted is not None and request.method == "POST":
            noted.status, noted.source, noted.retry_after = 0, source, None
        status = None
        exchange = wire_http.sent(self.name, request)
        try:
            response = yield request
            status = response.status_code
            if exchange is not None:
                wire_http.answered(exchange, response)
            if noted is not None and request.method == "POST":
                noted.status, noted.retry_after = status, _seconds(response.headers.get("retry-after", ""))
            if status < 300 and (session := response.headers.get("mcp-session-id")):
                self.session = session
        finally:
            if exchange is not None and status is None:
                exchange.close()
            if lease is not None:
                method, tool = wire_http.call_in(request)
                lease.report(self.name, source, credential, status, method, tool, self._variable)


def _seconds(text: str) -> float | None:
    """Return the seconds in ``Retry-After``; None for a date."""
    return min(float(text), _MAX_WAIT) if text.strip().isdigit() else None
