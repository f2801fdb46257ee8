"""Agents that choose another agent to answer; all in ``router_executor``."""
