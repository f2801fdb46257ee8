"""Slash commands of a conversation: the same in the workbench and on the command line, no screen in here."""

from .chat_commands import COMMANDS
from .command_host import Attaching, ChatHost, Parameter, Repeating, Threaded, Tunable
from .command_registry import Command, Completion, Outcome, Registry, Typed, read

__all__ = [
    "COMMANDS",
    "Attaching",
    "ChatHost",
    "Command",
    "Completion",
    "Outcome",
    "Parameter",
    "Registry",
    "Repeating",
    "Threaded",
    "Tunable",
    "Typed",
    "read",
]
