"""The bridge on stdin and stdout: what a client says there is said to a fleet's ``/mcp``."""
