"""MCP servers inspected and called by hand: their tools with schemas, changes in them, and single calls.

- ``server_connection`` connects to one server and explains failures; ``server_endpoint`` says where it is.
- ``tool_call`` makes one call, ``resource_reading`` reads a resource and follows it.
- ``seen_tools`` remembers tool lists to report changes.
- ``plain_json`` shows foreign JSON as bounded, masked text.
"""
