"""The stdio server that tests start in place of one of the SDK is like it, for every client."""

import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel
from support.live import ECHO_SERVER, ERAS, STDIO_SERVER

OURS = ECHO_SERVER.replace('("echo")', '("echo", instructions="Say it.")').replace(
    "server.run()",
    '''
from stdio_server import RefusedError

@server.tool()
def word() -> str:
    """The word among the metadata."""
    return str(server.meta.get("example.org/word"))

@server.tool(structured_output=False)
def refuse() -> str:
    """Refuse."""
    raise RefusedError(-32000, "no")

@server.tool(name="how.often", description="Count.")
def count(text: str, times: int = 2) -> str:
    return text * times

@server.tool(structured_output=False)
def look(at: str) -> dict[str, str]:
    """Make a picture."""
    return {"type": "image", "data": "cG5n", "mimeType": "image/png"}

server.run()
''',
)
OF_THE_SDK = '''
import asyncio
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.utilities.types import Image

server = MCPServer("echo", instructions="Say it.")

@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return "echo:" + text

@server.tool()
def boom(text: str) -> str:
    """Fail."""
    raise ValueError("kaput")

@server.tool()
async def slow(text: str) -> str:
    """Take a minute."""
    await asyncio.sleep(60)
    return "slow"

@server.tool()
def word(ctx: Context) -> str:
    """The word among the metadata."""
    return str((ctx.request_context.meta or {}).get("example.org/word"))

@server.tool(structured_output=False)
def refuse() -> str:
    """Refuse."""
    raise MCPError(code=-32000, message="no")

@server.tool(name="how.often", description="Count.")
def count(text: str, times: int = 2) -> str:
    return text * times

@server.tool(structured_output=False)
def look(at: str) -> Image:
    """Make a picture."""
    return Image(data=b"png", format="png")

server.run("stdio")
'''


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_it_says_what_one_of_the_sdk_says(tmp_path: Path, era: str) -> None:
    assert await _heard(tmp_path, OURS, era) == await _heard(tmp_path, OF_THE_SDK, era)


async def _heard(folder: Path, source: str, era: str) -> list[Any]:
    (folder / "server.py").write_text(source)
    (folder / "stdio_server.py").write_text(STDIO_SERVER)
    parameters = StdioServerParameters(command=sys.executable, args=["server.py"], cwd=folder)
    async with Client(stdio_client(parameters), mode=era) as client:
        session = client.session
        heard = [
            session.server_capabilities,
            session.protocol_version,
            client.instructions,
            await client.list_tools(),
            await client.list_resources(),
            await client.list_prompts(),
            await client.call_tool("echo", {"text": "x ümläut"}),
            await client.call_tool("boom", {"text": "x"}),
            await client.call_tool("word", meta={"example.org/word": "planted"}),
            await client.call_tool("word"),
            await client.call_tool("how.often", {"text": "x"}),
            await client.call_tool("how.often", {"text": "x", "times": 3}),
            await client.call_tool("look", {"at": "x"}),
        ]
        with pytest.raises(MCPError) as refused:
            await client.call_tool("refuse")
        heard.append(refused.value.error)
        with pytest.raises(MCPError, match="timed out"):  # the server hears that it is cancelled
            await client.call_tool("slow", {"text": "x"}, read_timeout_seconds=0.1)
        wrong = await client.call_tool("echo", {"texts": "x"})
        assert wrong.is_error
        heard.append(await client.call_tool("echo", {"text": "again"}))
    return [each.model_dump() if isinstance(each, BaseModel) else each for each in heard]
