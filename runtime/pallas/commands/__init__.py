"""Slash commands of a conversation: the same in the workbench and on the command line, no screen in here."""

from .chat import COMMANDS, ChatHost, Parameter
from .registry import Command, Completion, Outcome, Registry, Typed, read

__all__ = [
    "COMMANDS",
    "ChatHost",
    "Command",
    "Completion",
    "Outcome",
    "Parameter",
    "Registry",
    "Typed",
    "read",
]
