"""The agent with the answers. It has no servers: its answers come from the model alone."""

from fast_agent import FastAgent

fast = FastAgent("research")


@fast.agent(
    name="research",
    instruction="You are research. Answer questions about this project in one or two sentences.",
)
async def main() -> None:
    """Run the agent alone, without Pallas: python -m agents.research"""
    async with fast.run() as app:
        await app.interactive()


if __name__ == "__main__":
    import asyncio

    asyncio.run(main())
