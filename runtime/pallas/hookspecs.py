"""The extension points of Pallas: what a plugin may add.

A plugin is a module with some of these functions, each decorated with ``hookimpl``. It is a module of a
project, named under ``plugins:`` in ``agents.yaml``, or an installed package has an entry point for it in the
group ``pallas``. A function may leave out arguments that it does not need. docs/handlers.md has an example.

What a plugin gets and returns are the values that the types name; fields may be added to them.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pluggy import HookimplMarker, HookspecMarker

if TYPE_CHECKING:
    import typer

    from pallas.commands import ChatHost, SlashCommand
    from pallas.config import Mistake, Project
    from pallas.model import Event

hookspec = HookspecMarker("pallas")
hookimpl = HookimplMarker("pallas")


@hookspec
def project_checks(project: "Project") -> "Iterable[Mistake]":  # type: ignore[empty-body]
    """Return mistakes of the project, which ``pallas check`` reports beside those that it finds.

    Called when the project's files were read without an error. A function that raises or takes longer than 60
    s is reported as a problem of its plugin. A module of the project is called only with ``--import``,
    because the check otherwise imports no code of the project.
    """


@hookspec
def chat_commands() -> "Iterable[SlashCommand[ChatHost]]":  # type: ignore[empty-body]
    """Return slash commands for the chat of the workbench and for ``pallas chat``. Installed packages only.

    A command whose name is taken is left out.
    """


@hookspec
def command_line() -> "typer.Typer":  # type: ignore[empty-body]
    """Return a Typer app whose commands become commands of ``pallas``. Installed packages only.

    A command whose name is taken is left out.
    """


@hookspec
def fleet_event(event: "Event") -> None:
    """Receive each event of a fleet, in order, in a thread that belongs to the plugin.

    The fleet keeps its last 20,000 events: a plugin that falls further behind loses the oldest ones. When the
    fleet ends, the plugin has 2 s for the events that are left. With ``workers: N`` each process has its own
    events.
    """
