"""A place in a file that the user wrote."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Where:
    """``line`` and ``column`` count from 1, 0 for the file as a whole; places of one line are equal."""

    file: str
    line: int = 0
    column: int = field(default=0, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file
