"""The console: a conversation with a fleet, built from messages between handlers (HC-26).

``console_handlers`` has its two handlers, ``console_session`` runs them for `pallas console` and the
workbench, and ``console_listener`` prompts the console that an organism declares itself.
"""

from .console_handlers import CONSOLE, ROUTER, Console, ConsoleDesk, LineRouter, Seen

__all__ = ["CONSOLE", "ROUTER", "Console", "ConsoleDesk", "LineRouter", "Seen"]
