"""The MCP client for the servers of agents.

``usable_results`` makes a result that the SDK accepts of what a server sent, and says what was left out:
``usable_lists`` knows lists, ``usable_content`` the content of calls, ``usable_opening`` the answers that
open a connection, ``result_fit`` the models of the SDK. ``tool_names`` gives tools the names that model
providers and MCP clients take.
"""
