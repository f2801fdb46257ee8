"""Messages between handlers as the inspector shows them; nothing of the screen in here."""

from .message_book import MAX_MESSAGES, MAX_RUNS, MessageBook, RunEnvelopes

__all__ = ["MAX_MESSAGES", "MAX_RUNS", "MessageBook", "RunEnvelopes"]
