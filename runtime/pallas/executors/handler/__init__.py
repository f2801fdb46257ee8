"""Agents in plain Python, run in this process; fast-agent is not imported for them."""
