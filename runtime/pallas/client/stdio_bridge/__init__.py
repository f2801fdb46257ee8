"""The bridge on stdin and stdout: passes a client's messages to a fleet's ``/mcp``.

``stdio_wire`` owns stdin and stdout, ``jsonrpc_lines`` reads and writes messages, ``bridge_relay`` handles
one client's lines, ``bridge_requests`` sends them to the fleet, and ``bridge_target`` finds or starts that
fleet.
"""
