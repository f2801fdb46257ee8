"""MCP servers looked at and called by hand: their tools with schemas, what changed in them, one call."""
