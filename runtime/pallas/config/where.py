"""A place in a file that the user wrote."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Where:
    """``line`` counts from 1, 0 when it is the file as a whole."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file
