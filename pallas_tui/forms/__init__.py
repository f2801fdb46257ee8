"""Arguments for any tool, written by hand: schema -> fields -> value; nothing of the screen in here.

The validator is loaded when something is checked for the first time; ``warm_up`` does so before.
"""

from .form import Form, warm_up
from .json_text import JsonMistake
from .memory import Memory, Remembered
from .paths import ABSENT, Path
from .rows import FormRow, rows
from .shape import FieldKind, FieldShape

__all__ = [
    "ABSENT",
    "FieldKind",
    "FieldShape",
    "Form",
    "FormRow",
    "JsonMistake",
    "Memory",
    "Path",
    "Remembered",
    "rows",
    "warm_up",
]
