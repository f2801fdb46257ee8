"""The health of agents: which providers and MCP servers can be reached, and what callers may read of a
failure.

``preflight`` asks the model providers, whose addresses are in ``provider_endpoint``. ``probe`` asks an
agent's downstreams and combines the results with real calls into the agent's health. ``public_reasons``
reduces a reason for operators to what callers may see.
"""
