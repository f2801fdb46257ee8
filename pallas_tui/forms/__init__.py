"""Arguments for any tool, written by hand: schema -> fields -> value; nothing of the screen in here.

``check`` loads a validator (a quarter of a second): import this package where a form is opened, not before.
"""

from .form import Form
from .json_text import JsonMistake
from .memory import Memory, Remembered
from .paths import ABSENT, Path
from .rows import Row, rows
from .shape import Kind, Shape

__all__ = ["ABSENT", "Form", "JsonMistake", "Kind", "Memory", "Path", "Remembered", "Row", "Shape", "rows"]
