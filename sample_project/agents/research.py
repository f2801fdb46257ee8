"""The agent that reads documents. Its tools come from an MCP server over stdio, servers/docs.py."""

from fast_agent import FastAgent

fast = FastAgent("research")


@fast.agent(
    name="research",
    instruction="""
You are research at Larkmoor, a maker of lamps. Answer from the company's documents and from nothing else.
Search first, then read the section you need. Say which document your answer comes from. When the
documents do not tell, say so.
""",
    servers=["docs"],
)
async def main() -> None:
    """Pallas serves the agent and never calls this."""
