"""Arguments for any tool, written by hand: schema -> fields -> value; nothing of the screen in here.

The validator is loaded when something is checked for the first time; ``warm_up`` does so before.
"""

from .field_rows import FormRow, rows
from .field_shape import FieldKind, FieldShape
from .form import Form, warm_up
from .form_memory import Memory, Remembered
from .json_text import JsonMistake
from .value_paths import ABSENT, Path

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
