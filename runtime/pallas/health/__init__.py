"""Whether agents, providers and MCP servers can be reached, and what callers are told when not."""
