"""A wrong value of an option is named with what to write instead, in one way for all commands."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from pallas.cli.app import app, run

ROOT: Any = typer.main.get_command(app)
NUMBERS = ("int", "integer", "float", "int range", "integer range", "float range")


def numbers(command: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    """Every option of every command that takes a number."""
    for name, below in getattr(command, "commands", {}).items():
        yield from numbers(below, (*path, name))
    for parameter in command.params:
        if parameter.type.name in NUMBERS:
            yield path, parameter.opts[-1], parameter.type


ALL = list(numbers())


@pytest.mark.parametrize(("path", "option", "kind"), ALL, ids=[" ".join((*p, o)) for p, o, _ in ALL])
def test_a_word_in_place_of_a_number_is_told_with_what_to_write(
    path: tuple[str, ...], option: str, kind: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*path, option, "x"]) == 2
    what = "a number" if kind.name.startswith("float") else "a whole number"
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"Error: {option} x: write {what}"), last


def test_there_are_such_options() -> None:
    assert len(ALL) > 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("fork last --at 0", "--at 0: write a whole number, 1 or more"),
        ("fork last --at 1.5", "--at 1.5: write a whole number, 1 or more"),
        ("check bearer --callers 1", "--callers 1: write a whole number from 2 to 500"),
        ("ready --wait -1", "--wait -1.0: write a number"),
        ("schema agnts", "OF: there is no schema of agnts; allowed: agents, recording"),
        ("fork", "Missing argument 'RUN'."),
    ],
)
def test_a_value_out_of_range_is_told_with_the_range(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"Error: {said}")
    assert last.count("write") <= 1
