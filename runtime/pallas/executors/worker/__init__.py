"""Agents that are programs: they answer on their stdin and stdout, in one of two dialects.

See ``docs/agent-kinds.md#workers``. ``worker_executor`` is what the fleet uses.
"""
