"""Types of fields, each with its check and its JSON Schema."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
)
from pydantic import ValidatorFunctionWrapHandler as Handler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from pallas.safe_text import sanitize

type Check = Callable[[str], str | None]
"""Says what is wrong with a text and after a semicolon what is allowed, None when nothing is wrong."""

REFUSED: Final = "refused"
"""The type of the error for what a check refuses; its context has the words."""


def refused(problem: str) -> PydanticCustomError:
    """The error for ``problem; hint``."""
    return PydanticCustomError(REFUSED, "{problem}", {"problem": problem})


ABSENT: Final = object()
"""In place of the value of a field that was wrong and is reported, or that is missing and is reported."""
SKIPPED: Final = object()
"""In place of an entry of a list or a mapping, or of a key, that was wrong and is reported."""


class FileValue(BaseModel):
    """What a mapping of a file may say, as a value: two that say the same are equal.

    A field that was wrong has its default, a required one None.
    """

    # Built with the file that holds it: a model of its own would be built twice.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def _default(cls, value: Any, handler: Handler, info: ValidationInfo) -> Any:
        if value is not ABSENT:
            return handler(value)
        field = cls.model_fields[str(info.field_name)]
        return None if field.is_required() else field.get_default(call_default_factory=True)


@dataclass(frozen=True, slots=True)
class TextRule:
    """A text on one line, sanitised, that ``check`` has nothing against.

    With ``most`` it is prose: its line breaks are folded, and it has 1 to ``most`` characters. ``pattern``
    is for the JSON Schema alone.
    """

    check: Check | None = None
    most: int | None = None
    pattern: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        found = {**handler(schema), "minLength": 1}
        more = {"maxLength": self.most, "pattern": self.pattern}
        return found | {key: value for key, value in more.items() if value}

    def _read(self, value: str) -> str:
        value = sanitize(value.strip() if self.most is None else " ".join(value.split()))
        if "\n" in value:
            raise refused("has several lines; allowed: one line")
        if not value:
            raise PydanticCustomError("empty", "is empty")
        if self.most is not None and len(value) > self.most:
            raise refused(f"has {len(value)} characters; allowed: 1 to {self.most} characters")
        if self.check is not None and (problem := self.check(value)):
            raise refused(problem)
        return value


@dataclass(frozen=True, slots=True)
class AsWritten:
    """Marks a text for which a number or a boolean may stand, taken as it is written."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        return {**handler(schema), "type": ["string", "number", "boolean"]}


@dataclass(frozen=True, slots=True)
class NotNull:
    """Marks a value that may be left out, and not written without a value."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(source)
        return schema["schema"]  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Secret:
    """Marks what may be a secret: no message repeats it."""


@dataclass(frozen=True, slots=True)
class MissingHint:
    """Says what to do where a required key is missing, in place of its example."""

    hint: str


def at_most(most: int) -> BeforeValidator:
    """A mapping of at most so many entries; of one that has more none is looked at."""

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > most:
            raise refused(f"has {len(value)} entries; allowed: at most {most}")
        return value

    return BeforeValidator(check)


def _word(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("string_type", "is not a word")
    return value


def _choice(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def split(value: Any) -> str:
    """The tag of a text or a list."""
    return "list" if isinstance(value, tuple) else "text"


_T = TypeVar("_T")
Maybe = Annotated[_T | None, NotNull()]
"""None where it is left out."""
CHOICE: Final = BeforeValidator(_choice)
"""Before a ``Literal``: blanks around a word do not count."""
Line = Annotated[str, TextRule()]
Word = Annotated[str, AfterValidator(_word), AsWritten()]
"""A word of a command line or an environment: a number is taken as it is written."""
Loose = Annotated[str, AfterValidator(sanitize)]
"""A text of a list, which is checked with the others."""
Port = Annotated[int, Field(ge=1, le=65_535)]
NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9._-]{0,99}$"
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
