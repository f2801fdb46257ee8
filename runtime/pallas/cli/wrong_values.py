"""What is wrong with a value on the command line: which one, and what to write instead."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from pallas.safe_text import one_line


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
