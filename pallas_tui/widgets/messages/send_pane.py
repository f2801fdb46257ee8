"""The form for a message to a handler: fields from its schema, its JSON, or its XML."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import TextArea

from pallas.model import PayloadDetail, ToolDetail, ToolOutcome
from pallas.safe_text import one_line

from ...actions import bindings
from ...forms import Form, Memory
from ...forms.json_text import dump
from ...forms.value_paths import Path
from ...text import Glyphs
from ..agents.agent_control import fleet_of
from ..form.tool_call import Subject
from ..form.tool_pane import ToolPane
from .handler_lookup import look_up_payload

TOOL: Final = "send_message"


class SendPane(ToolPane):
    """Sends the text that was edited last: the fields, which the JSON is another view of, or the XML."""

    TITLE = "Send"
    HELP = """\
A message to one handler, as a caller from outside would send it. The fields are those of its payload's class:
**enter** edits one, **delete** sends nothing for it. A `*` marks a required field.

**2** shows the message as JSON, **3** as XML, starting with an example. **c** (in text `ctrl+r`) sends the
view that you edited last. The form and the fleet show at its field what the handler's schema refuses. **4**
shows the answer. The messages of the run are in the inspector: `M`, or `m` on its run in the feed.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("send")
    SECTIONS = ("form", "json", "xml", "result", "about")

    def __init__(self, agent: str, payload: PayloadDetail, memory: Memory, glyphs: Glyphs) -> None:
        super().__init__(Subject(agent, "", TOOL), _as_tool(agent, payload), memory, glyphs)
        self._example = payload.example
        self._as_xml = False
        self._version = 0

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield TextArea(
            self._example, id="tool-xml", compact=True, tab_behavior="focus", highlight_cursor_line=False
        )

    def on_mount(self) -> None:
        """Note the version of the handler that the form is for."""
        self._version = self._version_now()

    def key_of(self, subject: Subject) -> tuple[str, str, str]:
        """Return the key of the subject: not that of the tool itself, which takes text."""
        return subject.agent, "", f"{TOOL} {{}}"

    def arguments(self) -> Mapping[str, Any]:
        """Return the message as the handler reads it."""
        xml = self.query_one("#tool-xml", TextArea).text
        return {"message": xml.strip() if self._as_xml else dump(self.form.value, None)}

    def problem(self) -> str:
        """Return the problem, as for a tool: half a message is not sent."""
        if self._as_xml:
            return "" if self.query_one("#tool-xml", TextArea).text.strip() else "There is no XML to send."
        return super().problem()

    def wrong(self) -> int:
        """Return the number of mistakes: XML is checked by the fleet alone."""
        return 0 if self._as_xml else super().wrong()

    def came_back(self, outcome: ToolOutcome) -> str:
        """Return the answer, or the field that is refused."""
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

    # Another version of the handler

    def _version_now(self) -> int:
        fleet = fleet_of(self)
        agent = fleet.snapshot().agent(self.subject.agent) if fleet is not None else None
        return agent.version if agent is not None else 0

    def _beat(self) -> None:
        super()._beat()
        if self.writing or not self.screen.is_active:
            return  # nothing moves below the text that the user edits
        if (version := self._version_now()) and version != self._version:
            self._version = version
            look_up_payload(self, self.subject.agent, self._renew)

    def _renew(self, payload: PayloadDetail) -> None:
        """Rebuild the form for a reloaded handler: its fields are new, and the user's values stay."""
        if payload.input_schema == self._tool.input_schema and payload.example == self._example:
            return
        before, row, area = self.form, self.fields.selected, self.query_one("#tool-xml", TextArea)
        self._tool = _as_tool(self.subject.agent, payload)
        self.form = Form(payload.input_schema, before.value)
        self.form.edit_raw(before.raw)
        if area.text == self._example:
            area.load_text(payload.example)
        self._example = payload.example
        self.fields.show(self.form)
        if row is not None:
            self.fields.select(row.path)
        self.form_changed()
        self._fill()
        name = one_line(payload.name, 60)
        self.notify(f"{self.subject.agent} takes another {name} now; what you wrote stays.", markup=False)

    @on(TextArea.Changed, "#tool-xml")
    def _xml_typed(self, event: TextArea.Changed) -> None:
        event.stop()


def _as_tool(agent: str, payload: PayloadDetail) -> ToolDetail:
    name = one_line(payload.name, 100)
    description = f"A {name} for {agent}. An example of it as XML:\n\n{payload.example}"
    return ToolDetail(TOOL, name, description, payload.input_schema)


def refused_field(outcome: ToolOutcome) -> tuple[Path | None, str]:
    """Return the field of the message that an outcome refuses, and why; None where it names none."""
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
