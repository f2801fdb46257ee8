"""Faults for unsuccessful responses and broken connections."""

from typing import TYPE_CHECKING, Final

from pallas.bounds.fleet_answer import read_answer
from pallas.model import Fault, FaultType, codec
from pallas.safe_text import one_line

if TYPE_CHECKING:
    import httpx2

BASE: Final = "/api/v1"


class NoFleetAnswers(Fault):
    """No server answers at an address, or the server is no fleet with an API for agents (TRANSPORT)."""

    def __init__(self, message: str) -> None:
        super().__init__(FaultType.TRANSPORT, message)


async def refusal(answer: "httpx2.Response", origin: str) -> Fault:
    """Return the Fault in a response; NoFleetAnswers when a fleet did not send it."""
    status = answer.status_code
    body = await read_answer(answer)
    try:
        document = codec.loads(body)
    except codec.Undecodable:
        document = None
    if isinstance(document, dict) and isinstance(document.get("data"), dict):
        return codec.fault_of(document, f"the fleet at {origin} answered HTTP {status}")
    if status == 421:
        return NoFleetAnswers(
            f"the fleet at {origin} does not answer to that host name; use another name or address of it, or "
            "add the name to allowed_hosts: in its agents.yaml"
        )
    if status in (401, 403):
        return Fault(
            FaultType.AUTH,
            f"{origin} answered HTTP {status}: give a valid token with --token or in PALLAS_TOKEN",
        )
    if status in (413, 429, 500, 502, 503, 504):
        kind = FaultType.PROTOCOL if status == 413 else FaultType.TRANSPORT
        return Fault(kind, f"{origin} answered HTTP {status}" + (": too large" if status == 413 else ""))
    return NoFleetAnswers(
        f"there is no API for agents at {origin} (HTTP {status}): check that it is the registry's port of a "
        "fleet that keeps a ledger"
    )


def lost(error: Exception, origin: str, *, connected: bool = False) -> Fault:
    """Return the Fault for a request that broke off; ``connected`` once a response had begun."""
    import httpx2

    what = one_line(str(error), 120) or type(error).__name__
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        if "CERTIFICATE" in what or "SSL" in what:
            return NoFleetAnswers(f"the certificate of {origin} is not trusted ({what}); see SSL_CERT_FILE")
        return NoFleetAnswers(f"nothing answers at {origin} ({what})")
    if isinstance(error, httpx2.TimeoutException):
        return Fault(FaultType.TIMEOUT, f"{origin} did not answer in time")
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return NoFleetAnswers(f"{origin} is not the address of a fleet: write http://host:port")
    if connected:
        return Fault(FaultType.TRANSPORT, f"the connection to {origin} broke off ({what})")
    if isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError):
        return NoFleetAnswers(f"what listens at {origin} did not answer with HTTP ({what})")
    return Fault(FaultType.TRANSPORT, f"{origin}: {what}")
