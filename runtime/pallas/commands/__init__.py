"""Slash commands of a conversation, shared by the workbench and the command line; without a screen.

``command_registry`` parses a line, runs its command and completes it. ``chat_commands`` and
``parameter_commands`` are the commands themselves. ``command_host`` has the protocols that a conversation
implements so that commands can act on it. ``parameter_text`` reads and shows the parameters of a model.
"""

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
