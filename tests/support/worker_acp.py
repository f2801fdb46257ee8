"""A worker of the Agent Client Protocol, on its own library, that does as the message says; run as a program.

Messages it knows, else it answers the blocks that it was told:

- ``work``: text, a thought, a tool call, text again
- ``hold``: some text, then waits until it is cancelled
- ``permit``: asks leave for something and answers what it was told
- ``files``: reads a file by its client, and answers what came of that
- ``flood``: text without end
- ``strange``: updates that no schema knows, then its answer

``WORKER_MODE`` holds words: ``login`` wants to be logged in, ``blind`` takes no pictures.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any, cast

from acp import Client, RequestError, run_agent
from acp.helpers import (
    start_tool_call,
    update_agent_message_text,
    update_agent_thought_text,
    update_tool_call,
)
from acp.schema import (
    AgentCapabilities,
    AuthMethodAgent,
    Implementation,
    InitializeResponse,
    NewSessionResponse,
    PermissionOption,
    PromptCapabilities,
    PromptResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    ToolCallUpdate,
    Usage,
)

MODE = os.environ.get("WORKER_MODE", "").split()


class Worker:
    """One process, many sessions."""

    def __init__(self) -> None:
        self.sessions = 0
        self.stops: dict[str, asyncio.Event] = {}
        self.heard: list[str] = []

    def on_connect(self, conn: Client) -> None:
        self.client = conn

    async def initialize(
        self, protocol_version: int, client_capabilities: Any = None, client_info: Any = None, **_: Any
    ) -> InitializeResponse:
        login: list[Any] = [AuthMethodAgent(id="key", name="An \x1b[31mAPI key")] if "login" in MODE else []
        return InitializeResponse(
            protocol_version=protocol_version,
            agent_capabilities=AgentCapabilities(
                prompt_capabilities=PromptCapabilities(image="blind" not in MODE),
                session_capabilities=SessionCapabilities(close=SessionCloseCapabilities()),
            ),
            auth_methods=login,
            agent_info=Implementation(name="worker", version="1"),
        )

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        if "login" in MODE:
            raise RequestError.auth_required()
        self.sessions += 1
        return NewSessionResponse(session_id=f"s{self.sessions}")

    async def close_session(self, session_id: str, **_: Any) -> None:
        self.heard.append(f"close:{session_id}")

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.heard.append(f"cancel:{session_id}")
        if session_id in self.stops:
            self.stops[session_id].set()

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> PromptResponse:
        said = " + ".join(
            block.text if block.type == "text" else f"<{block.type} {block.mime_type}>" for block in prompt
        )
        reason: Any = "end_turn"

        async def tell(text: str) -> None:
            await self.client.session_update(session_id, update_agent_message_text(text))

        match prompt[-1].text.split()[0] if prompt[-1].type == "text" else "":
            case "work":
                await tell("Let me ")
                await tell("look.\r\n")
                await self.client.session_update(session_id, update_agent_thought_text("hm"))
                await self.client.session_update(
                    session_id, start_tool_call("t1", "docs/search(words)", kind="search", status="pending")
                )
                await self.client.session_update(session_id, update_tool_call("t1", status="completed"))
                await self.client.session_update(
                    session_id, start_tool_call("t2", "Run \x1b[31mtests", kind="execute")
                )
                await self.client.session_update(session_id, update_tool_call("t2", status="failed"))
                await tell("Done.")
            case "hold":
                stop = self.stops[session_id] = asyncio.Event()
                await tell("so far")
                await stop.wait()
                reason = "cancelled"
            case "permit":
                kinds: Any = prompt[-1].text.split()[1:] or ("allow_once", "reject_once")
                known = {"allow_once": "yes", "reject_once": "no"}
                options = [
                    PermissionOption(option_id=known.get(kind, kind), name=kind, kind=kind) for kind in kinds
                ]
                call = ToolCallUpdate(tool_call_id="t1", title="Delete \x1b[31meverything")
                got = await self.client.request_permission(session_id, call, options)
                await tell(got.outcome.model_dump_json(by_alias=True, exclude_none=True))
            case "files":
                try:
                    await self.client.read_text_file("/etc/hostname", session_id)
                except RequestError as error:
                    await tell(f"refused: {error.code}")
            case "flood":
                stop = self.stops[session_id] = asyncio.Event()
                while not stop.is_set():
                    await tell("x" * 10_000)
                reason = "cancelled"
            case "strange":
                sys.stdout.write(
                    '{"jsonrpc":"2.0","method":"session/update","params":'
                    f'{{"sessionId":"{session_id}","update":{{"sessionUpdate":"dance"}}}}}}\n'
                    '{"jsonrpc":"2.0","method":"_more/news","params":[1]}\n'
                )
                sys.stdout.flush()
                await tell("understood")
            case "heard":
                await tell(" ".join(self.heard))
            case _:
                await tell(said)
        usage = Usage(total_tokens=9, input_tokens=7, output_tokens=2)
        return PromptResponse(stop_reason=reason, usage=usage)


if __name__ == "__main__":
    asyncio.run(run_agent(cast(Any, Worker())))
