"""Messages between handlers for the inspector. Nothing in here imports the screen."""

from .message_book import MAX_MESSAGES, MAX_RUNS, MessageBook, RunEnvelopes

__all__ = ["MAX_MESSAGES", "MAX_RUNS", "MessageBook", "RunEnvelopes"]
