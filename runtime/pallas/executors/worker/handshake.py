"""Which of the two dialects a worker speaks: it is asked, in that of ACP."""

import asyncio
import re
from importlib import import_module
from typing import Any, Final

from pallas.config.kinds import WorkerConfig
from pallas.model import Fault, FaultType
from pallas.model.safe_text import one_line

from .json_rpc_peer import METHOD_NOT_FOUND, Peer, Refused
from .worker_dialect import Dialect, Simple

_UNKNOWN: Final = re.compile(
    r"\b(?:unknown|unsupported|invalid|no such)\s+method\b"
    r"|\bmethod\b.{0,60}\b(?:not (?:found|known|supported|implemented)|unknown|unsupported)\b",
    re.IGNORECASE,
)
_HINT: Final = "set dialect: ndjson for a worker that does not speak the Agent Client Protocol"


async def greet(name: str, config: WorkerConfig, peer: Peer) -> Dialect:
    """The dialect of a worker that was just started.

    Where it is not configured, ``initialize`` finds out: an answer with a ``protocolVersion`` is ACP, one
    without, and an error that says that there is no such method, is the simple one. Raises Fault: TIMEOUT for
    a worker that does not answer, UPSTREAM for another error, PROTOCOL for what cannot be read.
    """
    if config.dialect == "ndjson":
        return Simple(name, config, peer)
    # The schema of ACP takes a while to import, and only who speaks it needs it.
    acp = await asyncio.to_thread(import_module, ".agent_client", __package__)
    try:
        said = await peer.call("initialize", acp.hello(), config.request_timeout)
    except Refused as refused:
        if config.dialect == "auto" and _is_unknown(refused):
            return Simple(name, config, peer)
        raise Fault(
            FaultType.UPSTREAM,
            f"{name}: the worker answered initialize with an error: {refused.message}; {_HINT}",
            data={"stage": "initialize", "upstreamCode": refused.code},
        ) from None
    except Fault as fault:
        if fault.type not in (FaultType.TIMEOUT, FaultType.TRANSPORT):
            raise
        raise Fault(fault.type, f"{fault.message}; {_HINT}", data=fault.data, cause=fault.cause) from None
    if isinstance(said, dict) and "protocolVersion" in said:
        dialect: Dialect = acp.AgentClient(name, config, peer, said)
        return dialect
    if config.dialect == "auto":
        return Simple(name, config, peer, said)
    raise Fault(
        FaultType.PROTOCOL,
        f"{name}: the worker's answer to initialize has no protocolVersion: {_shown(said)}; {_HINT}",
        data={"stage": "initialize"},
    )


def _is_unknown(refused: Refused) -> bool:
    """Whether it says that there is no such method; not everyone knows the code for that."""
    return refused.code == METHOD_NOT_FOUND or _UNKNOWN.search(refused.message) is not None


def _shown(said: Any) -> str:
    return one_line(repr(said), 80)
