"""Conversations with agents.

``chat_pane`` has the tabs, ``conversation_view`` one conversation, ``transcript`` its messages,
``prompt_area`` the prompt. ``message_view`` is one message; ``answer_lines`` draws its text, as
``answer_layout`` lays out each block, and ``tool_tree`` its calls.
"""

from .chat_pane import ChatPane

__all__ = ["ChatPane"]
