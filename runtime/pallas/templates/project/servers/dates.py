"""Your own tool server. Each function below `@server.tool()` is a tool: its name, its types and its first
line are what the model reads.

Pallas starts this file as a child process of the agent and speaks MCP with it over stdin and stdout. So do
not read stdin. Save the file while `pallas dev` runs, and the next question uses it.
"""

import sys
from datetime import date

from mcp.server.mcpserver import MCPServer

server = MCPServer("dates", log_level="ERROR")


@server.tool()
def today() -> str:
    """The date of today, as 2030-12-31."""
    return date.today().isoformat()


@server.tool()
def days_until(day: str) -> int:
    """The number of days from today until a day such as 2030-12-31."""
    print(f"looking at {day}", file=sys.stderr)  # in the log, under the name of the server
    return (date.fromisoformat(day) - date.today()).days  # the model gets the error, the log the traceback


if __name__ == "__main__":
    server.run("stdio")
