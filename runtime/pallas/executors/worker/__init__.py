"""Agents that are programs: they answer on their stdin and stdout, in one of two dialects.

See ``docs/workers.md`` and SPEC 7.4. ``worker_executor`` is what the fleet uses.
"""
