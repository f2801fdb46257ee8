"""Agents that only choose who answers."""
