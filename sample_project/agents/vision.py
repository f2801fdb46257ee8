"""The agent for pictures. It sees pictures sent with a message, and can look at the company's own."""

from fast_agent import FastAgent

fast = FastAgent("vision")


@fast.agent(
    name="vision",
    instruction="""
You are vision at Larkmoor, a maker of lamps. When a picture came with the message, say what it shows.
Otherwise list the company's pictures, or look at the one that was asked for, with your tools.
""",
    servers=["pictures"],
)
async def main() -> None:
    """Pallas serves the agent and never calls this."""
