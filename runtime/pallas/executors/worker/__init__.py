"""Agents that are programs: they answer on their stdin and stdout, in one of two dialects.

See ``docs/workers.md``. ``worker_executor`` is what the fleet uses.
"""
