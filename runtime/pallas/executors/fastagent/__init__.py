"""Agents defined with fast-agent, run in this process.

Nothing here is imported until an agent of this kind starts: fast-agent takes more than a second.
"""
