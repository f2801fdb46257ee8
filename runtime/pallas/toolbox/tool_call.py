"""A single tool call to one server, made by hand."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, Final

from mcp import Client
from mcp_types import CallToolResult
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from pallas.model import Fault, FaultType, ToolOutcome
from pallas.model.redaction import forget, redact, redact_text
from pallas.safe_text import one_line

from .plain_json import json_text, text_of
from .server_connection import connected
from .server_endpoint import ServerEndpoint

# Limits in characters: a result as JSON, one text in it, and all its texts.
MAX_CONTENT: Final = 1024 * 1024
MAX_TEXT: Final = 256 * 1024
_MAX_TEXTS: Final = 100


type Check = Callable[[Client], Awaitable[None]]


async def call_tool(
    endpoint: ServerEndpoint,
    tool: str,
    arguments: Mapping[str, Any],
    bearer: str | None = None,
    *,
    check: Check | None = None,
) -> ToolOutcome:
    """Call a tool and return its result, errors included; the connection is closed afterwards. Has no
    deadline. ``check`` gets the connected client before, and may raise Fault.

    Raises Fault: PROTOCOL if the arguments cannot be sent, UPSTREAM if the server cannot be reached, does
    not know the tool or breaks the protocol.
    """
    if bearer:  # the server may repeat it
        redact(bearer)
    try:
        async with connected(endpoint, bearer) as client:
            if check is not None:
                await check(client)
            began = perf_counter()
            try:
                result = await client.call_tool(tool, dict(arguments))
            except PydanticSerializationError as error:
                raise Fault(
                    FaultType.PROTOCOL, f"the arguments are not JSON: {one_line(str(error), 200)}"
                ) from error
            except (RuntimeError, ValidationError) as error:  # the result does not fit the tool's own schema
                raise _refused(
                    tool, f"its result breaks the protocol ({one_line(str(error), 200)})"
                ) from error
            seconds = perf_counter() - began
        # A large result takes a moment: keep that out of the agents' event loop.
        return await asyncio.to_thread(_outcome, result, seconds)
    finally:
        if bearer:
            forget(bearer)


def _outcome(result: CallToolResult, seconds: float) -> ToolOutcome:
    body = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    texts = [block.text for block in result.content if block.type == "text"]
    return ToolOutcome(
        ok=not result.is_error,
        content=json_text(body, MAX_CONTENT, each=MAX_TEXT, indent=2),
        seconds=seconds,
        texts=tuple(text_of(text, MAX_TEXT) for text in texts[:_MAX_TEXTS]),
    )


def _refused(tool: str, reason: str) -> Fault:
    return Fault(FaultType.UPSTREAM, f"{one_line(tool, 100)}: {one_line(redact_text(reason), 400)}")
