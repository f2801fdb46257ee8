"""The official MCP conformance suite against agents of Pallas; `make conformance` runs it."""
