"""Conversations as values, and how they are held over MCP. Nothing in here imports the screen."""
