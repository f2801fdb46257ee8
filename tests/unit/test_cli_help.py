"""The help of each command: whole descriptions, groups, and an example that the command line takes."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pallas.cli.app import app
from pallas.cli.command_help import EXAMPLES, GROUPS

ROOT: Any = typer.main.get_command(app)


def commands(command: Any = ROOT, path: tuple[str, ...] = ("pallas",)) -> Iterator[tuple[str, ...]]:
    """The words of a command and of all below it."""
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


def shown(*words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], prog_name="pallas", env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.output


def test_each_command_is_in_one_group() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(ROOT.commands)


def test_the_groups_come_in_order_and_no_description_is_cut() -> None:
    text = shown()
    places = [text.index(f"\n{title}:\n") for title in GROUPS]
    assert places == sorted(places)
    assert "...\n" not in text.partition("Start:")[2]
    assert max(map(len, text.splitlines())) <= 80
    assert "Answer a run's question" in text


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_help_ends_with_an_example_that_is_right(path: tuple[str, ...]) -> None:
    example = EXAMPLES[" ".join(path)]
    text = shown(*path[1:])
    assert text.rstrip().endswith(f"Example: {example}")
    assert max(map(len, text.splitlines())) <= 80
    program, *words = shlex.split(example.partition(" > ")[0].partition(" < ")[0])
    assert program == "pallas"
    assert words[: len(path) - 1] == list(path[1:])
    command, context = ROOT, ROOT.make_context("pallas", words)
    while rest := [*context._protected_args, *context.args]:
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
        if not getattr(command, "commands", None):
            break
