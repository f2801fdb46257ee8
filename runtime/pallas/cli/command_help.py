"""The help of the command line: commands in groups, an example for each, and words for wrong values."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import typer
from typer.core import TyperGroup

from pallas.safe_text import one_line

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Start": ("init", "dev", "check"),
    "Talk": ("chat", "answer", "console", "connect", "bridge"),
    "Look": ("get", "describe", "tasks", "diff", "route"),
    "Change": ("create", "apply", "delete", "fork", "lock"),
    "Serve": ("ready", "drain", "token", "systemd"),
    "Tools": ("test", "verdict", "keep", "record", "replay", "schema"),
}
"""The commands of ``pallas``, those that are used most first."""

EXAMPLES: Final[Mapping[str, str]] = {
    "pallas": "pallas dev sample_project",
    "pallas answer": "pallas answer ID --yes",
    "pallas apply": "pallas apply -f reviewer.yaml",
    "pallas bridge": "pallas bridge --project desk",
    "pallas chat": "pallas chat concierge -m 'Which invoices are open?'",
    "pallas check": "pallas check desk --import",
    "pallas check bearer": "pallas check bearer",
    "pallas check project": "pallas check project desk --json",
    "pallas check tools": "pallas check tools --sarif > tools.sarif",
    "pallas connect": "pallas connect concierge --client cursor",
    "pallas console": "pallas console desk",
    "pallas create": "pallas create agent reviewer --llm qwen",
    "pallas create agent": "pallas create agent reviewer --llm qwen",
    "pallas create llm": "pallas create llm fast --type openai --model gpt-5-mini",
    "pallas create project": "pallas create project billing --server invoices",
    "pallas create secret": "pallas create secret openai --data API_KEY=@key.txt",
    "pallas delete": "pallas delete agent reviewer",
    "pallas describe": "pallas describe agent reviewer",
    "pallas dev": "pallas dev desk",
    "pallas diff": "pallas diff RUN last",
    "pallas drain": "pallas drain ID",
    "pallas fork": "pallas fork last --at 3",
    "pallas get": "pallas get runs --status error",
    "pallas init": "pallas init desk",
    "pallas keep": "pallas keep last",
    "pallas lock": "pallas lock",
    "pallas ready": "pallas ready desk --wait 30",
    "pallas record": "pallas record last",
    "pallas replay": "pallas replay recordings/desk",
    "pallas route": "pallas route 'Which invoices are open?'",
    "pallas schema": "pallas schema > .pallas/agents.schema.json",
    "pallas systemd": "pallas systemd desk --user",
    "pallas tasks": "pallas tasks list",
    "pallas tasks attach": "pallas tasks attach ID",
    "pallas tasks cancel": "pallas tasks cancel ID",
    "pallas tasks list": "pallas tasks list",
    "pallas tasks show": "pallas tasks show ID",
    "pallas test": "pallas test --live --max-cost 0.50",
    "pallas token": "pallas token new ci --expires 90d",
    "pallas token hash": "pallas token hash < token.txt",
    "pallas token new": "pallas token new ci --expires 90d",
    "pallas verdict": "pallas verdict --json",
}
"""By the words of the command."""


class CommandGroup(TyperGroup):
    """A group whose help has an example for each command and cuts no description.

    A wrong value of an option or argument is reported in the words of Pallas.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the group's own options."""
        with in_words():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is named."""
        with in_words():
            return super().invoke(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of that name, its example at the end of its help."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and (example := EXAMPLES.get(f"{ctx.command_path} {cmd_name}")):
            command.epilog = f"Example: {example}"
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands: those of ``pallas`` in ``GROUPS``, others in one list."""
        groups = GROUPS if ctx.parent is None else {"Commands": tuple(self.list_commands(ctx))}
        for title, names in groups.items():
            self.write_section(formatter, title, {name: self.get_command(ctx, name) for name in names})

    @staticmethod
    def write_section(formatter: Any, title: str, commands: Mapping[str, Any]) -> None:
        """Write commands by name with their summaries below a title, if there are any."""
        if commands:
            with formatter.section(title):
                formatter.write_dl([(name, _summary(command)) for name, command in commands.items()])


def _summary(command: Any) -> str:
    """The first paragraph of a command's help."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


class WrongValue(typer.BadParameter):
    """The same mistake, in the words of Pallas: ``--at x: write a whole number, 1 or more``."""

    def __init__(self, error: typer.BadParameter) -> None:
        super().__init__(_words(error), error.ctx)

    def format_message(self) -> str:
        """Return the message as it is."""
        return self.message


@contextmanager
def in_words() -> Iterator[None]:
    """Replace what is raised for a wrong value; a value that is missing is another mistake."""
    try:
        yield
    except typer.BadParameter as error:
        if type(error) is typer.BadParameter:
            raise WrongValue(error) from None
        raise


def _words(error: typer.BadParameter) -> str:
    parameter: Any = error.param
    if parameter is None:
        return f"{error.param_hint}: {error.message}" if error.param_hint else error.message
    where = parameter.opts[-1] if parameter.param_type_name == "option" else parameter.make_metavar(error.ctx)
    expected = _number(parameter.type) or _one_of(parameter.type)
    if not expected:
        return f"{where}: {error.message}"
    value = error.message.rpartition(" is not ")[0].strip("'")
    return f"{where} {one_line(value, 40)}: write {expected}"


def _number(kind: Any) -> str:
    """Return which numbers a type takes, empty for what is no number."""
    name, _, _ = str(kind.name).partition(" ")
    if name not in ("int", "integer", "float"):
        return ""
    least, most = getattr(kind, "min", None), getattr(kind, "max", None)
    bounds = {
        (False, False): "",
        (True, False): f", {least} or more",
        (False, True): f", {most} at most",
        (True, True): f" from {least} to {most}",
    }
    what = "a number" if name == "float" else "a whole number"
    return what + bounds[least is not None, most is not None]


def _one_of(kind: Any) -> str:
    choices = [str(getattr(each, "value", each)) for each in getattr(kind, "choices", ())]
    return " or ".join(filter(None, (", ".join(choices[:-1]), *choices[-1:])))
