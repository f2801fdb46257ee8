"""A message to a handler, written by hand: fields made from its schema, its JSON, or its XML."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import TextArea

from pallas.model import PayloadDetail, ToolDetail, ToolOutcome
from pallas.text import one_line

from ...actions import bindings
from ...forms import Memory
from ...forms.json_text import dump
from ...forms.paths import Path
from ...text import Glyphs
from ..form.calling import Subject
from ..form.pane import ToolPane

TOOL: Final = "send_message"
_OTHERS: Final = frozenset({"tool.result", "tool.about"})


class SendPane(ToolPane):
    """What is sent is what was written last: the fields, which the JSON is another view of, or the XML."""

    TITLE = "Send"
    HELP = """\
A message to one handler, as a caller from outside would send it. The fields are those of its payload's class:
**enter** writes one, **delete** sends nothing for it. A `*` marks what is required.

**2** has the message as JSON, **3** as XML, beginning with an example; what was written last is sent, with
**c** (in text `ctrl+r`). What the handler's schema refuses is told at its field, by the form and by the
fleet. **4** has the answer. The messages of the run are in the inspector: `M`, or `m` on its run in the feed.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        *(each for each in bindings("tool") if isinstance(each, Binding) and each.id not in _OTHERS),
        *bindings("send"),
    ]
    SECTIONS = ("form", "json", "xml", "result", "about")

    def __init__(self, agent: str, payload: PayloadDetail, memory: Memory, glyphs: Glyphs) -> None:
        name = one_line(payload.name, 100)
        told = f"A {name} for {agent}. An example of it as XML:\n\n{payload.example}"
        super().__init__(
            Subject(agent, "", TOOL), ToolDetail(TOOL, name, told, payload.input_schema), memory, glyphs
        )
        self._example = payload.example
        self._as_xml = False

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield TextArea(
            self._example, id="tool-xml", compact=True, tab_behavior="focus", highlight_cursor_line=False
        )

    def key_of(self, subject: Subject) -> tuple[str, str, str]:
        """Not those of the tool itself, which takes text."""
        return subject.agent, "", f"{TOOL} {{}}"

    def arguments(self) -> Mapping[str, Any]:
        """The message as the handler reads it."""
        xml = self.query_one("#tool-xml", TextArea).text
        return {"message": xml.strip() if self._as_xml else dump(self.form.value)}

    def problem(self) -> str:
        """Half a message is not sent."""
        if self._as_xml:
            return "" if self.query_one("#tool-xml", TextArea).text.strip() else "There is no XML to send."
        return super().problem()

    def wrong(self) -> int:
        """XML is checked by the fleet alone."""
        return 0 if self._as_xml else super().wrong()

    def came_back(self, outcome: ToolOutcome) -> str:
        """The answer, or the field that is refused."""
        field, why = refused_field(outcome)
        if field is None or self._as_xml:
            return "result"
        self.form.refuse(field, why)
        self.fields.take()
        return "form" if self.fields.select(field) else "result"

    def _show_section(self) -> None:
        self.query_one("#tool-xml").display = self._section == "xml"
        if self._section in ("form", "json", "xml"):
            self._as_xml = self._section == "xml"
        super()._show_section()

    @on(TextArea.Changed, "#tool-xml")
    def _xml_typed(self, event: TextArea.Changed) -> None:
        event.stop()


def refused_field(outcome: ToolOutcome) -> tuple[Path | None, str]:
    """Which field of the message an outcome says is wrong, and why; None where it says nothing of that."""
    if outcome.ok or not outcome.texts:
        return None, ""
    try:
        body = json.loads(outcome.texts[0])
        field = body["data"]["field"]
        why = str(body.get("error") or "refused")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None, ""
    if not isinstance(field, str) or not field:
        return None, ""
    path = tuple(int(step) if step.isascii() and step.isdigit() else step for step in field.split("."))
    return path, one_line(why, 200)
