"""Conversations as values, and how they are held over MCP. Nothing in here imports the screen.

``conversation`` is one with its messages (``chat_entry``) and its run; ``mcp_talk`` holds it with an agent.
``answer_blocks`` splits the Markdown of an answer, ``call_tree`` and ``call_outline`` are its calls;
``stored_thread`` reads it from the ledger.
"""
