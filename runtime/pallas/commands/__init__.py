"""Slash commands of a conversation: the same in the workbench and on the command line, no screen in here."""

from .chat_commands import COMMANDS
from .command_host import Attaching, ChatHost, Repeating, ShownParameter, Threaded, Tunable
from .command_registry import CommandCompletion, CommandOutcome, Registry, SlashCommand, Typed, read

__all__ = [
    "COMMANDS",
    "Attaching",
    "ChatHost",
    "CommandCompletion",
    "CommandOutcome",
    "Registry",
    "Repeating",
    "ShownParameter",
    "SlashCommand",
    "Threaded",
    "Tunable",
    "Typed",
    "read",
]
