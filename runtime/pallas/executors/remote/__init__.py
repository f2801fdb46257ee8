"""Agents served by another MCP endpoint: another Pallas, fast-agent, or any chat-like tool.

No MCP module is imported before such an agent is loaded.

- ``remote_executor`` runs turns; ``remote_endpoint`` knows the other side, ``call_method`` how to call it.
- ``turn_arguments`` and ``remote_answer`` convert a turn to a tool call and its result back.
- ``remote_connection`` and ``connection_pool``: the MCP connections. ``endpoint_watch`` checks that the
  other side is up.
- ``remote_credentials``, ``remote_faults`` and ``remote_progress``: credentials, errors and progress.
"""
