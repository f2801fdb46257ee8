"""Agents, LLMs, secrets, projects, threads and runs on the command line: `get`, `apply` and the others."""
