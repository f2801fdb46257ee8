"""The fields of a form on screen, and every key that changes one."""

from collections.abc import Callable, Hashable
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult

from pallas.safe_text import one_line

from ...forms import ABSENT, FieldKind, FieldShape, Form, FormRow, JsonMistake, rows
from ...forms.field_text import written
from ...forms.json_text import brief, dump, same
from ...forms.value_paths import Path
from ...text import Glyphs, Line
from ..dialogs.choice_dialog import ChoiceScreen
from ..fact_lines import DetailLines
from ..line_view import LineView
from ..pane import SectionsPane
from ..row_list import RowList
from .field_editor import FieldEditor
from .form_view import form_line, hint_lines, kind_of

_WRITTEN = (FieldKind.TEXT, FieldKind.INTEGER, FieldKind.NUMBER, FieldKind.ANY)


class FormList(RowList[FormRow]):
    """One line a field. After each change of the form: ``take``."""

    def __init__(self, form: Form, glyphs: Glyphs) -> None:
        super().__init__(glyphs, id="form-list")
        self._form = form
        self._reasons: dict[Path, str] = {}

    def row_key(self, row: FormRow) -> Hashable:
        return row.path

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
        self._reasons = dict(self._form.mistakes.fields)
        self.show_rows(rows(self._form))
        self.refresh()

    def select(self, path: Path) -> bool:
        """Put the cursor on a field."""
        if (index := self.find(path)) is None:
            return False
        self.action_move_to(index)
        return True

    def line_at(self, index: int, width: int) -> Line:
        row = self.rows[index]
        return form_line(row, self.reason(row), width, self._glyphs)

    def empty_text(self) -> str:
        if self._form.schema.problem:
            return f"{self._form.schema.problem}.\nWrite the arguments as JSON: 2."
        if self._form.root_shape.more is not None and self._form.root_shape.properties == {}:
            return "This tool names no arguments.\nc calls it; a adds a field, 2 has the JSON."
        return "This tool takes no arguments.\nc calls it."


class FieldKeys(SectionsPane):
    """The part of a form's pane that shows fields and writes them. ``form`` may be replaced by another."""

    OF_FIELDS: ClassVar[frozenset[str]] = frozenset(
        ("edit", "next", "unset", "null", "empty", "default", "add", "variant", "as_json", "fold")
    )
    """The actions that belong to a field."""

    def __init__(self, form: Form, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id, section="form")
        self.form = form
        self.glyphs = glyphs
        self._take: Callable[[str], str] | None = None

    def compose_fields(self) -> ComposeResult:
        """Yield the list, the hints for the selected field, and its editor."""
        yield FormList(self.form, self.glyphs)
        yield DetailLines(id="form-hint")
        yield FieldEditor(self._finished, self._close)

    @property
    def fields(self) -> FormList:
        """The list."""
        return self.query_one(FormList)

    @property
    def editor(self) -> FieldEditor:
        """Where a field is written."""
        return self.query_one(FieldEditor)

    @property
    def writing(self) -> bool:
        """Whether a field is being written."""
        return self._take is not None

    def begin_fields(self) -> None:
        """Show the form, and write into the first text or number that is required and missing."""
        self.fields.show(self.form)
        self.form_changed()
        first = next((r for r in self.fields.rows if r.required and r.value is ABSENT and r.path), None)
        if first is not None:
            self.fields.select(first.path)
            if first.shape.kind in _WRITTEN:
                # At once: text typed right after the form opened must not reach the list as keys.
                self.action_edit()

    def form_changed(self) -> None:
        """The arguments changed."""
        self.fields.take()
        self.call_after_refresh(self.hint)

    def focus_fields(self) -> None:
        """Focus the open editor, else the list."""
        self.screen.set_focus(self.editor.area if self.writing else self.fields)

    def hint(self) -> None:
        """Show the hints for the selected field."""
        view, row = self.query_one(DetailLines), self.fields.selected
        size = view.content_region.size
        reason = self.fields.reason(row) if row is not None else ""
        view.show_lines(hint_lines(row, reason, size.width, size.height) if size else ())

    def on_resize(self) -> None:
        """Show the hints again: they are wrapped to the width."""
        self.call_after_refresh(self.hint)

    @on(LineView.CursorMoved)
    def _moved(self, event: LineView.CursorMoved) -> None:
        event.stop()
        if event.view is self.fields:
            self.hint()

    @on(LineView.LineChosen)
    def _chosen(self, event: LineView.LineChosen) -> None:
        event.stop()
        if event.view is self.fields:
            self.action_edit()

    # Writing

    def write(self, label: str, text: str, hint: str, take: Callable[[str], str]) -> None:
        """Open the line to write in; ``take`` gets the text and returns why it is refused, else empty."""
        self._take = take
        self.editor.open(label, text, hint)

    def finish_writing(self) -> bool:
        """Submit the open editor; return False when it refuses, and show why in it."""
        take = self._take
        if take is None:
            return True
        if self.editor.touched or not self.editor.text:
            reason = take(self.editor.text)
            if reason:
                self.editor.refuse(reason)
                self.screen.set_focus(self.editor.area)
                return False
        self._close()
        return True

    def _close(self) -> None:
        self._take = None
        self.editor.close()
        self.form_changed()
        self.screen.set_focus(self.fields)

    def _finished(self, step: int) -> None:
        if self.finish_writing():
            self.fields.action_move(step or 1)
            row = self.fields.selected
            if step and row is not None and row.path and row.shape.kind in _WRITTEN and not row.foldable:
                self.action_edit()

    def _taking(self, do: Callable[[str], None]) -> Callable[[str], str]:
        def take(text: str) -> str:
            try:
                do(text)
            except JsonMistake as mistake:
                return str(mistake)
            return ""

        return take

    # Keys

    def action_edit(self) -> None:
        """Write the selected field, choose for it, or fold it."""
        row = self.fields.selected
        if row is None or row.more:
            return
        kind = row.shape.kind
        if not row.path:
            self.action_variant()
        elif row.foldable and (kind in (FieldKind.OBJECT, FieldKind.ARRAY) or row.value is not ABSENT):
            self._fold(row, not row.opened)
        elif kind is FieldKind.BOOLEAN:
            self.action_next()
        elif kind is FieldKind.CHOICE:
            self._choose(row)
        elif kind is FieldKind.NULL:
            self.action_null()
        elif row.value is not ABSENT and not row.shape.fits(row.value):
            self.action_as_json()  # as text it would turn into something else
        else:
            self._write(row)

    def _write(self, row: FormRow) -> None:
        path, shape, required = row.path, row.shape, row.required
        do = self._taking(lambda text: self.form.type_in(path, shape, text, required))
        empty = "" if required else "; left empty it is not sent"
        self.write(row.label, written(shape, row.value), f"{kind_of(row)}{empty}", do)

    def action_as_json(self) -> None:
        """Edit the selected field as JSON, whichever its kind."""
        row = self.fields.selected
        if row is None or row.more or not row.path:
            return
        path = row.path
        text = (
            "" if row.value is ABSENT else dump(row.value, 2 if isinstance(row.value, dict | list) else None)
        )
        do = self._taking(lambda text: self.form.type_json(path, text))
        self.write(row.label, text, "JSON; left empty it is not sent", do)

    def _choose(self, row: FormRow) -> None:
        shape, path = row.shape, row.path
        names = [_named(shape, index) for index in range(len(shape.choices))]

        def chosen(index: int | None) -> None:
            if index is not None:
                self._do(lambda: self.form.set(path, shape.choices[index]))

        now = next((i for i, one in enumerate(shape.choices) if same(one, row.value)), -1)
        self.app.push_screen(ChoiceScreen(row.label, names, now), chosen)

    def action_next(self) -> None:
        """Yes or no, or the next choice."""
        row = self.fields.selected
        if row is None or not row.path:
            return
        if row.shape.kind is FieldKind.BOOLEAN:
            self._do(lambda: self.form.set(row.path, row.value is not True))
        elif row.shape.kind is FieldKind.CHOICE and row.shape.choices:
            choices = row.shape.choices
            now = next((i for i, one in enumerate(choices) if same(one, row.value)), -1)
            self._do(lambda: self.form.set(row.path, choices[(now + 1) % len(choices)]))

    def action_unset(self) -> None:
        """Send nothing for the selected field; an item is removed."""
        if (row := self.fields.selected) is not None and not row.more:
            self._do(lambda: self.form.unset(row.path))

    def action_null(self) -> None:
        """Send null."""
        self._put(None)

    def action_empty(self) -> None:
        """Send an empty text."""
        self._put("")

    def _put(self, value: Any) -> None:
        row = self.fields.selected
        if row is not None and row.path and not row.more:
            self._do(lambda: self.form.set(row.path, value))

    def action_default(self) -> None:
        """Send the default."""
        row = self.fields.selected
        if row is not None and row.path and row.shape.default is not ABSENT:
            self._do(lambda: self.form.set(row.path, row.shape.default))

    def action_fold(self, unfold: bool) -> None:
        """Fold or unfold the selected field; what has nothing to fold goes up to the one above it."""
        row = self.fields.selected
        if row is None:
            return
        if row.foldable and row.opened is not unfold:
            self._fold(row, unfold)
        elif not unfold and len(row.path) > 1:
            self.fields.select(row.path[:-1])

    def _fold(self, row: FormRow, opened: bool) -> None:
        if opened and row.value is ABSENT and row.shape.kind is FieldKind.ARRAY:
            self._do(lambda: self.form.set(row.path, []))
        self.form.opened[row.path] = opened
        self.form_changed()

    def action_add(self) -> None:
        """Add an item to the selected list or the one around the field; or a field to an object."""
        row = self.fields.selected
        path: tuple[str | int, ...] = row.path if row is not None else ()
        shape = row.shape if row is not None and row.path else self.form.root_shape
        if (
            row is not None
            and shape.kind not in (FieldKind.ARRAY, FieldKind.OBJECT)
            and not isinstance(row.value, list)
        ):
            path = path[:-1]
            above = next((one for one in self.fields.rows if one.path == path), None)
            shape = above.shape if above is not None else self.form.root_shape
        if shape.kind is FieldKind.ARRAY:
            new = self.form.add(path, shape)
            self._added(new, "No more items are allowed there.")
        elif shape.kind is FieldKind.OBJECT and shape.more is not None:
            self.write(
                "name of the field", "", "enter takes it", lambda text: self._take_name(path, shape, text)
            )
        else:
            self.notify("Nothing can be added there.", markup=False)

    def _take_name(self, path: tuple[str | int, ...], shape: FieldShape, text: str) -> str:
        if not text:
            return ""
        return (
            "" if self.form.name(path, shape, text) is not None else f"{one_line(text, 40)} is there already"
        )

    def _added(self, path: tuple[str | int, ...] | None, refused: str) -> None:
        if path is None:
            self.notify(refused, markup=False)
            return
        self.form_changed()
        self.fields.select(path)
        row = self.fields.selected
        if row is not None and row.path == path and row.shape.kind in _WRITTEN:
            self.action_edit()

    def action_variant(self) -> None:
        """Choose among the variants of the selected field."""
        row = self.fields.selected
        if row is None or row.chooser is None:
            return
        chooser, path = row.chooser, row.path
        shapes = [self.form.shapes.of(node) for node in chooser.variants]
        names = [_described(shape) for shape in shapes]

        def chosen(index: int | None) -> None:
            if index is not None:
                self._do(lambda: self.form.choose(path, chooser, index))

        self.app.push_screen(ChoiceScreen(row.label, names, row.variant), chosen)

    def _do(self, change: Callable[[], None]) -> None:
        change()
        self.form_changed()


def _described(shape: FieldShape) -> str:
    name = shape.title or shape.kind.value
    fields = ", ".join(one_line(field, 30) for field in list(shape.properties)[:6])
    return f"{name}: {fields}" if fields else name


def _named(shape: FieldShape, index: int) -> str:
    title = shape.titles[index] if index < len(shape.titles) else ""
    value = brief(shape.choices[index], 80)
    return f"{title}  {value}" if title else value
