"""The two ends of a worker's stdin and stdout, one of them done by hand."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pallas.executors.worker.json_rpc_peer import JsonRpcError, JsonRpcPeer
from pallas.executors.worker.worker_limits import LIMITS, WorkerLimits
from pallas.model import Fault, FaultType


@dataclass
class Other:
    """The worker's end, done by hand."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    heard: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    broke: list[str] = field(default_factory=list)

    async def read(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            message: dict[str, Any] = json.loads(await self.reader.readline())
        return message

    def write(self, *lines: Any) -> None:
        for line in lines:
            self.writer.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")


@asynccontextmanager
async def joined(limits: WorkerLimits = LIMITS) -> AsyncIterator[tuple[JsonRpcPeer, Other]]:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    other = Other(*await asyncio.open_connection(sock=theirs))

    def asked(method: str, params: Mapping[str, Any]) -> Any:
        if method == "known":
            return {"got": params}
        raise JsonRpcError(-32601, "Method not found")

    peer = JsonRpcPeer(
        "coder",
        reader,
        writer,
        limits,
        on_notification=lambda method, params: other.heard.append((method, params)),
        on_request=asked,
        on_broken=other.broke.append,
    )
    try:
        yield peer, other
    finally:
        peer.fail(Fault(FaultType.TRANSPORT, "over"))
        for each in (writer, other.writer):
            each.close()
