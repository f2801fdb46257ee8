"""Commands of ``pallas`` that plugins of installed packages add."""

import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from pallas.cli.command_help import CommandGroup


class PallasGroup(CommandGroup):
    """The commands of ``pallas``, then those of plugins: plugins are looked for where those are needed."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of that name; a plugin's only if Pallas has none."""
        return super().get_command(ctx, cmd_name) or _commands().get(cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names, those of plugins last."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in _commands() if name not in own)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in their groups, those of plugins in one of their own."""
        super().format_commands(ctx, formatter)
        added = {name: command for name, command in _commands().items() if name not in self.commands}
        self.write_section(formatter, "Plugins", added)


@cache
def _commands() -> Mapping[str, Any]:
    from typer.main import get_group

    from pallas.plugins import installed_plugins

    found: dict[str, Any] = {}
    plugins = installed_plugins()
    for _, group in plugins.results("command_line", get_group):
        for name, command in group.commands.items():
            found.setdefault(name, command)
    for problem in plugins.problems:
        print(f"pallas: {problem}", file=sys.stderr)
    return found
