"""The answers to callers that are not let in (RFC 6750): enough to fix the request, and no more."""

from typing import Final

from starlette.types import Scope, Send

from pallas.model import Fault, FaultType
from pallas.surfaces.whole_answer import answer_json

MISSING: Final = "this agent needs a token; send it as a bearer in the Authorization header"
WRONG: Final = "this token is not accepted here; it may have expired, or be meant for another service"
SCOPE: Final = "this token may not do that here"
TOO_MANY: Final = "too many wrong tokens from this address; wait, then try again"
UNSURE: Final = "the token cannot be checked just now; try again in a moment"
# A JSON-RPC error: MCP clients show its message.
_CODE: Final = Fault(FaultType.AUTH, "").code


def bearer(**parameters: str) -> str:
    """Return the value of ``WWW-Authenticate`` without empty parameters."""
    shown = ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value)
    return "Bearer " + (shown or 'realm="pallas"')


async def refuse(
    scope: Scope, send: Send, status: int, error: str, message: str, headers: dict[str, str] | None = None
) -> None:
    """Answer with a JSON-RPC error that has no request id and repeats nothing of the caller's request."""
    fault = {"code": _CODE, "message": message, "data": {"type": FaultType.AUTH.value, "error": error}}
    body = {"jsonrpc": "2.0", "id": None, "error": fault}
    await answer_json(scope, send, status, body, {"cache-control": "no-store", **(headers or {})})
