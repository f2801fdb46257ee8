"""Inbound authentication: who calls an agent, and whether that is enough."""
