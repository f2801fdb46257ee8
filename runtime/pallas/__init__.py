"""Pallas: a runtime that serves a fleet of LLM agents over MCP."""

__version__ = "0.2.0"
