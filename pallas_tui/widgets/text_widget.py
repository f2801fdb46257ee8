"""Which widgets one types into."""

import sys
from typing import TYPE_CHECKING, TypeGuard

from textual.widget import Widget
from textual.widgets import Input

if TYPE_CHECKING:
    from textual.widgets import TextArea


def takes_text(widget: Widget | None) -> "TypeGuard[Input | TextArea]":
    """Return whether text is typed into ``widget``.

    TextArea and what it needs are imported with the first widget of that kind, after the first paint.
    """
    module = sys.modules.get("textual.widgets._text_area")
    return isinstance(widget, Input) or (module is not None and isinstance(widget, module.TextArea))
