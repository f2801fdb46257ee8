"""The other side of the contract's worker: speaks ACP, answers as ``contract.Words`` does; run as a program.

``CONTRACT_LOG`` is a file with a line for each question that it begins (``+``) and ends (``-``).
"""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acp import Agent, Client, RequestError, run_agent
from acp.helpers import update_agent_message_text
from acp.schema import (
    AgentCapabilities,
    InitializeResponse,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    Usage,
)

LOG = Path(os.environ["CONTRACT_LOG"])


def note(sign: str) -> None:
    """Something began or ended."""
    with LOG.open("a") as file:
        file.write(f"{sign}\n")


class Words(Agent):
    """One process, many sessions."""

    def __init__(self) -> None:
        self.turns: Counter[str] = Counter()
        self.stops: dict[str, asyncio.Event] = {}

    def on_connect(self, conn: Client) -> None:
        self.client = conn

    async def initialize(
        self, protocol_version: int, client_capabilities: Any = None, client_info: Any = None, **_: Any
    ) -> InitializeResponse:
        prompts = PromptCapabilities(image=True)
        return InitializeResponse(
            protocol_version=protocol_version,
            agent_capabilities=AgentCapabilities(prompt_capabilities=prompts),
        )

    async def new_session(  # type: ignore[override]
        self, cwd: str, **_: Any
    ) -> NewSessionResponse:
        session = f"s{len(self.stops)}"
        self.stops[session] = asyncio.Event()
        return NewSessionResponse(session_id=session)

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.stops[session_id].set()

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> PromptResponse:
        text = next(block.text for block in reversed(prompt) if block.type == "text")
        reason: Any = "end_turn"

        async def tell(said: str) -> None:
            await self.client.session_update(session_id, update_agent_message_text(said))

        self.turns[session_id] += 1
        note("+")
        try:
            match text.split()[0]:
                case "wait":
                    stop = self.stops[session_id] = asyncio.Event()
                    await tell("so far ")
                    await stop.wait()
                    reason = "cancelled"
                case "fail":
                    raise RequestError.internal_error({"details": "kaput"})
                case "hostile":
                    await tell("red\x1b[31m and \u202e back")
                case "picture":
                    kinds = [block.mime_type for block in prompt if block.type == "image"]
                    await tell(f"{len(kinds)} picture: {' '.join(kinds)}")
                case "pieces":
                    for piece in ("one ", "two ", "three"):
                        await tell(piece)
                case _:
                    await tell(f"{self.turns[session_id]}:{text}")
        finally:
            note("-")
        return PromptResponse(
            stop_reason=reason, usage=Usage(total_tokens=9, input_tokens=7, output_tokens=2)
        )


if __name__ == "__main__":
    asyncio.run(run_agent(Words()))  # type: ignore[abstract]
