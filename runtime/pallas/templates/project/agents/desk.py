"""The agent that users talk to. It asks research for every answer."""

from fast_agent import FastAgent

# Pallas looks for this name.
fast = FastAgent("desk")


@fast.agent(
    name="desk",
    instruction="You are the front desk. Hand every question to research and pass on what it answers.",
    # Names under mcp.servers in fastagent.config.yaml. Their tools are this agent's tools.
    servers=["research"],
)
async def main() -> None:
    """Run the agent alone, without Pallas: python -m agents.desk"""
    async with fast.run() as app:
        await app.interactive()


if __name__ == "__main__":
    import asyncio

    asyncio.run(main())
