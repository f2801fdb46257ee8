"""Answers with a run that goes on from a step with another version of the project."""

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pallas.model import Fault, FaultType, Recording
from pallas.model.money import Cost, cost_fields
from pallas.recordings.recording_folder import archive_of
from pallas.runs.version_fork import VersionFork, forked_version
from pallas.safe_text import one_line

from .run_answers import answered, disconnected, key_in

AT_ONCE: Final = 2
"""Such runs of one fleet at a time: each is a process with a fleet of its own."""
_BUSY_S: Final = 5.0


class VersionForks:
    """Starts such runs. Belongs to the fleet's event loop."""

    def __init__(self) -> None:
        self._running = 0

    async def answer(
        self, request: Request, recording: Recording, changes: Mapping[str, Any], version: str, root: Path
    ) -> Response:
        """Run it and answer as a chat does, with the recording; a caller that disconnects ends it.

        Raises Fault.
        """
        if key_in(request):
            text = "Idempotency-Key: is not for a run of another version, which no ledger has; leave it out"
            raise Fault(FaultType.PROTOCOL, text, data={"key": "Idempotency-Key"})
        if self._running >= AT_ONCE:
            text = f"{AT_ONCE} runs of other versions are under way; try again when one is over"
            raise Fault(FaultType.TRANSPORT, text, data={"retry_after": _BUSY_S})
        self._running += 1
        work = asyncio.ensure_future(forked_version(recording, changes, version, root))
        gone = asyncio.ensure_future(disconnected(request))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ClientDisconnect
            return await _answer(work.result())
        finally:
            self._running -= 1
            gone.cancel()
            if not work.done():
                work.cancel()
                await asyncio.wait({work})


async def _answer(found: VersionFork) -> Response:
    run = found.recording.first
    if run.status != "ok":
        raise Fault(FaultType.UPSTREAM, one_line(run.fault or f"the run ended as {run.status}", 400))
    steps = [each.step.kind for each in run.steps]
    usage = {"inputTokens": run.tokens_in, "outputTokens": run.tokens_out}
    archive = await asyncio.to_thread(archive_of, found.recording)
    body = {
        "text": run.answer,
        "threadId": None,
        "turnIndex": None,
        "runId": run.id,
        "stopReason": "endTurn",
        "seconds": run.seconds,
        "steps": steps.count("model"),
        "tools": len(steps) - steps.count("model"),
        "usage": usage if (run.tokens_in, run.tokens_out) != (None, None) else None,
        **cost_fields(run, Cost.sum(found.recording.runs)),
        "version": found.version,
        "recording": base64.b64encode(archive).decode(),
    }
    return answered(body, run.id)
