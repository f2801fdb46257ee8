"""Answers models, MCP servers and agents elsewhere from a recording, in place of connections to them.

``replay`` holds the recording of one event loop, and answers requests to models; ``recorded_servers`` are MCP
servers in memory; ``recorded_agent`` is the executor of a worker or a remote agent. A fleet makes and
installs a ``Replay``; so does the process of an agent that runs apart.
"""
