"""The fields of a form, as a list that is made only where it is seen."""

from collections.abc import Hashable

from ...forms import Form, FormRow, rows
from ...forms.value_paths import ABSENT, Path
from ...text import Glyphs, Line, wrapped
from ..line_view import LineView
from ..tones import DIM
from .form_view import form_line


class FormList(LineView):
    """One line a field. After each change of the form: ``take``."""

    def __init__(self, form: Form, glyphs: Glyphs) -> None:
        super().__init__(id="form-list")
        self._form = form
        self._glyphs = glyphs
        self._rows: tuple[FormRow, ...] = ()
        self._reasons: dict[Path, str] = {}

    @property
    def selected(self) -> FormRow | None:
        """The field under the cursor."""
        return self._rows[self.cursor] if self.cursor < len(self._rows) else None

    @property
    def rows(self) -> tuple[FormRow, ...]:
        """All lines."""
        return self._rows

    def reason(self, row: FormRow) -> str:
        """Return the mistake in a field; empty for a field that is only not filled in yet."""
        reason = self._reasons.get(row.path, "")
        return "" if reason == "required" and row.value is ABSENT else reason

    def show(self, form: Form) -> None:
        """Show another form from now on."""
        self._form = form
        self.cursor = 0
        self.take()

    def take(self) -> None:
        """The form changed."""
        self._rows = rows(self._form)
        self._reasons = dict(self._form.mistakes.fields)
        self.reload()
        self.refresh()

    def select(self, path: Path) -> bool:
        """Put the cursor on a field."""
        if (index := self.find(path)) is None:
            return False
        self.action_move_to(index)
        return True

    def line_count(self) -> int:
        return len(self._rows)

    def line_at(self, index: int, width: int) -> Line:
        row = self._rows[index]
        return form_line(row, self.reason(row), width, self._glyphs)

    def key_at(self, index: int) -> Hashable:
        return self._rows[index].path

    def find(self, key: Hashable) -> int | None:
        return next((index for index, row in enumerate(self._rows) if row.path == key), None)

    def empty(self, width: int) -> list[Line]:
        hint = "This tool takes no arguments.\nc calls it."
        if self._form.schema.problem:
            hint = f"{self._form.schema.problem}.\nWrite the arguments as JSON: 2."
        elif self._form.root_shape.more is not None and self._form.root_shape.properties == {}:
            hint = "This tool names no arguments.\nc calls it; a adds a field, 2 has the JSON."
        return [((line, DIM),) for line in wrapped(hint, width)]
