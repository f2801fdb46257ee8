"""Agents alive: start order, readiness, state, and an orderly end."""
