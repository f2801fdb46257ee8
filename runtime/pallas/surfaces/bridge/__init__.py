"""The bridge: eight tools by which a client finds agents, leases them and gives them work.

- ``bridge_server``: its MCP server. ``bridge_tools`` and ``task_tools`` are the tools.
- ``tool_schemas``, ``tool_documents`` and ``tool_arguments``: their input schemas, results and checks of
  arguments.
- ``place``: the bridge's address and the transports that serve it.
"""
