"""The SDK's own client session with answers in place of a server: does it accept a result?"""

import asyncio
from typing import Any

from mcp.client.session import ClientSession
from mcp_types import DiscoverResult, Implementation, InitializeResult, ServerCapabilities
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS

from pallas.downstreams.usable_results import usable_result

MODERN, HANDSHAKE = "2026-07-28", "2025-06-18"


class _Answers:
    """A dispatcher that has the same answer to each request."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def send_raw_request(self, method: str, params: Any, opts: Any = None) -> Any:
        return dict(self.answer)  # the session changes its ttlMs

    async def notify(self, method: str, params: Any, opts: Any = None) -> None:
        """Take it."""


async def accepted(method: str, version: str, answer: dict[str, Any]) -> Any:
    """What the session makes of the answer to a request. Raises what it raises."""
    session = ClientSession(dispatcher=_Answers(answer))  # type: ignore[arg-type]
    if method == "initialize":
        return await session.initialize()
    if method == "server/discover":
        return DiscoverResult.model_validate(await session.send_discover(LATEST_MODERN_VERSION))
    session.adopt(_opening(version))
    match method:
        case "tools/list":
            return await session.list_tools()
        case "prompts/list":
            return await session.list_prompts()
        case "resources/list":
            return await session.list_resources()
        case "resources/templates/list":
            return await session.list_resource_templates()
        case "tools/call":
            session._tool_output_schemas["a"] = None  # as after a list: no output schema is ever in one
            return await session.call_tool("a", {}, allow_input_required=True)
        case "prompts/get":
            return await session.get_prompt("a", allow_input_required=True)
        case "resources/read":
            return await session.read_resource("mem://a", allow_input_required=True)
        case "completion/complete":
            from mcp_types import PromptReference

            return await session.complete(PromptReference(name="a"), {"name": "a", "value": ""})
    return await session.send_ping()


def _opening(version: str) -> InitializeResult | DiscoverResult:
    if version in MODERN_PROTOCOL_VERSIONS:
        return DiscoverResult(supported_versions=[version], capabilities=ServerCapabilities())
    return InitializeResult(
        protocol_version=version,
        capabilities=ServerCapabilities(),
        server_info=Implementation(name="odd", version="1"),
    )


def usable(method: str, raw: Any, version: str = HANDSHAKE) -> tuple[dict[str, Any], list[str]]:
    """The result, which the SDK accepts, and the findings as texts."""
    made = usable_result(method, raw, version)
    assert made.result is not None, made.problem
    asyncio.run(accepted(method, version, made.result))
    return made.result, [str(each) for each in made.findings]


def whole(version: str, **keys: Any) -> dict[str, Any]:
    """A list's result with what the newer version wants beside it."""
    return (
        {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **keys} if version == MODERN else keys
    )
