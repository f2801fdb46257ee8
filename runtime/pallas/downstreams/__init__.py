"""The MCP client for the servers of agents.

- ``connection``: one connection to one server, opened by ``opening`` over one of ``transports``, with the
  lists of ``offer``. This is where a call of a tool leaves the process: over HTTP through
  ``pallas.aiohttp_transport``, to a program through its standard input.
- ``raw_streams``: the messages of a connection before the SDK reads them, with the ``flood_limit`` of what
  nobody asked for; ``sse_streams``: the older transport; ``http_requests``: what became of the requests of a
  call; ``pulse``: whether a server answers; ``server_stderr``: what programs write outside the protocol.
- ``usable_results`` makes a result that the SDK accepts of what a server sent, and says what was left out:
  ``usable_lists`` knows lists, ``usable_content`` the content of calls, ``usable_opening`` the answers that
  open a connection, ``result_fit`` the models of the SDK.
- ``tool_names`` gives tools the names that model providers and MCP clients take.
"""
