"""The ways into a fleet: everything that listens on a port and answers requests.

- ``agent_mcp``, ``project_mcp``, ``virtual_servers``: the MCP servers of one agent, of the project and of
  agents as tools; ``agent_tool`` is the ``chat`` tool, ``tasks_extension`` the Tasks extension.
- ``rest/``: the REST API. ``bridge/``: the eight tools for clients that lease agents. ``control/``: the
  control API of the workbench and the command line.
- ``auth/``: which callers are let in. ``host_guard``, ``body_limit`` and ``tls_certificate`` protect the
  ports.
- ``listener``, ``ingress`` and ``connections`` open the ports; ``mcp_sessions`` and ``on_demand_server``
  put MCP sessions on them.
- ``registry`` and ``server_cards`` publish the agents; ``metrics`` and ``status_pages``
  report their state.
"""
