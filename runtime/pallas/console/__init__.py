"""The console: a conversation with a fleet that is itself made of messages between handlers (HC-26)."""

from .console_handlers import CONSOLE, ROUTER, Console, ConsoleDesk, LineRouter, Seen

__all__ = ["CONSOLE", "ROUTER", "Console", "ConsoleDesk", "LineRouter", "Seen"]
