"""Conversations as values and as calls over MCP: nothing of the screen in here."""
