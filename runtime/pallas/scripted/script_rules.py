"""The values of a script: rules, conditions, calls and refusals."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import AfterValidator

from ..config import Where
from ..config.field_types import CHOICE, Line, Maybe, TextRule
from ..config.file_model import FileModel
from .scripted_conversation import Last
from .template import Template, parse_template

DEFAULT_MODEL: Final = "scripted"


def _regex_problem(text: str) -> str | None:
    try:
        re.compile(text, re.IGNORECASE)
    except re.PatternError as error:
        reason = error.msg if error.pos is None else f"{error.msg} at character {error.pos + 1}"
    except (OverflowError, RecursionError):
        reason = "it is too large"
    else:
        return None
    return f"is not a regular expression: {reason}; allowed: what Python's re takes"


_Folded = Annotated[Line, AfterValidator(str.casefold)]


class When(FileModel):
    """Conditions that must all hold; None asks nothing.

    ``text``, ``user`` and ``system`` are casefolded and found anywhere; ``tool`` and ``model`` are whole
    names.
    """

    last: Maybe[Annotated[Last, CHOICE]] = None
    tool: Maybe[Line] = None
    text: Maybe[_Folded] = None
    regex: Maybe[Annotated[str, TextRule(_regex_problem)]] = None
    user: Maybe[_Folded] = None
    system: Maybe[_Folded] = None
    model: Maybe[Line] = None
    images: Maybe[bool] = None

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """``regex``, compiled."""
        return None if self.regex is None else re.compile(self.regex, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RuleCall:
    """A tool to call. ``arguments`` are JSON values with a Template where the script has text."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP error instead of an answer; ``retry_after`` in seconds."""

    status: int
    message: Template
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class ScriptRule:
    """One rule: either ``error``, or words, calls or both.

    ``delay`` is the wait before the first chunk, ``pace`` the wait between chunks, both in seconds.
    """

    when: When
    say: Template | None = None
    calls: tuple[RuleCall, ...] = ()
    delay: float = 0.0
    pace: float = 0.0
    error: Refusal | None = None
    where: Where = field(default_factory=lambda: Where("model.yaml"))


@dataclass(frozen=True, slots=True)
class Script:
    """Rules in order: the first that fits answers, and the last fits everything.

    ``models`` are the names the server lists; it answers to any name.
    """

    rules: tuple[ScriptRule, ...]
    models: tuple[str, ...] = (DEFAULT_MODEL,)


def no_answer(file: str) -> ScriptRule:
    """The rule after the last: it says that none fitted, where to add one, and which request it was."""
    text = f"No rule in {file} answers this; add one there. The model was asked:\n\n{{{{ last | quote }}}}"
    return ScriptRule(When(), say=parse_template(text, None), where=Where(file))
