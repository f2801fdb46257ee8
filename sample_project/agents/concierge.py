"""The agent that users talk to. It asks the other agents for every answer."""

from fast_agent import FastAgent

# Pallas looks for this name.
fast = FastAgent("concierge")


@fast.agent(
    name="concierge",
    instruction="""
You are the concierge of Larkmoor, a maker of lamps. You know nothing yourself; your colleagues do.
Ask research about anything that is written down: invoices, incidents, warranty, shipping, how-tos.
Ask catalogue about products, prices, stock and orders.
Put each question so that it can be understood alone. When two questions do not need each other's answers,
ask them at once. Then answer in your own words, in Markdown, and say which colleague told you what.
""",
    # Names under mcp.servers in fastagent.config.yaml. Each is an agent too, and gives this one a tool:
    # research__send_message and catalogue__send_message.
    servers=["research", "catalogue"],
)
async def main() -> None:
    """Pallas serves the agent and never calls this."""
