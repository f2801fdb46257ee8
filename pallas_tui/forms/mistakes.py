"""What a check found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .value_paths import Path


@dataclass(frozen=True, slots=True)
class Mistakes:
    """``fields`` has the reason by path; ``note`` says in a line why the check was not whole, else empty."""

    fields: Mapping[Path, str] = field(default_factory=dict)
    note: str = ""
