"""A tool called by hand: fields, the JSON of the arguments, the result, and what the tool says of itself."""

from collections.abc import Mapping
from time import monotonic
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static, TextArea
from textual.worker import Worker

from pallas.model import ToolDetail, ToolOutcome

from ...actions import bindings
from ...chat import chat_principal as principals
from ...chat.chat_principal import NOBODY, ChatPrincipal
from ...clipboard import copy
from ...forms import Form, Memory, Remembered
from ...text import Glyphs, duration
from ...ui_clock import PERIOD
from ..agents.agent_control import fleet_of, refusal
from ..agents.agent_paragraphs import plain, pretty
from ..dialogs.line_dialog import masked_token
from ..pane import PaneLeft, SectionShown
from ..status_line import QuestionLine
from ..text_lines import TextLines
from ..tones import DIM, KEY
from .field_keys import FieldKeys
from .form_view import summary
from .tool_call import NotCalled, Subject, call, is_variable, token_of


class ToolPane(FieldKeys):
    """One tool: what it takes is written in fields or as JSON, which are two views of the same arguments."""

    TITLE = "Tool"
    HELP = """\
Call one tool by hand. Each line is a field: **enter** edits it (or chooses, or unfolds), **delete** sends
nothing for it, **n** sends null, **"** an empty text: these are three different things. A `*` marks a
required field; an optional field that is empty is not sent.

**2** shows all arguments as JSON. Both views stay in step, and keys that the tool's schema does not know are
kept. A value that does not fit the schema is marked at its field; **c** (in text `ctrl+r`) can still call the
tool, after a question, so that you can see how it answers.

**b** sends a token: that of an environment variable, of which only the name is remembered, or with `ask` one
that you type without an echo and that is dropped with this form. The last arguments of each tool are
kept until the workbench ends.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("tool")
    SECTIONS: ClassVar[tuple[str, ...]] = ("form", "json", "result", "about")

    def __init__(self, subject: Subject, tool: ToolDetail, memory: Memory, glyphs: Glyphs) -> None:
        last = memory.last(self.key_of(subject))
        form = Form(tool.input_schema, last.arguments if last is not None else None)
        super().__init__(form, glyphs, id="tool-pane")
        self.subject = subject
        self._tool = tool
        self._memory = memory
        self._variable = last.variable if last is not None else ""
        self._typed = NOBODY
        self._outcome: ToolOutcome | None = None
        self._as_json = False
        self._calling = False
        self._call: Worker[None] | None = None
        self._began = 0.0
        self._status_parts: object = None

    def key_of(self, subject: Subject) -> tuple[str, str, str]:
        """Under what the last arguments are kept."""
        return subject.agent, subject.server, subject.tool

    def arguments(self) -> Mapping[str, Any]:
        """What the tool is called with."""
        return self.form.value

    def problem(self) -> str:
        """Why it cannot be called as it stands, empty where it can."""
        return f"The JSON cannot be sent: {self.form.raw_mistake}." if self.form.raw_mistake else ""

    def wrong(self) -> int:
        """How much of the arguments is not as the schema says."""
        return len(self.form.mistakes.fields)

    def came_back(self, outcome: ToolOutcome) -> str:
        """Return the section that shows the outcome of a call."""
        return "result"

    def compose(self) -> ComposeResult:
        with Vertical(id="tool-form"):
            yield from self.compose_fields()
        yield TextArea(id="tool-json", compact=True, tab_behavior="focus", highlight_cursor_line=False)
        yield TextLines(id="tool-text")
        yield Static(id="tool-status", markup=False)

    def on_mount(self) -> None:
        """Begin with the first field that must be filled in."""
        self.begin_fields()
        self._show_section()
        self.set_interval(PERIOD, self._beat)

    # Showing

    def form_changed(self) -> None:
        """Follow a change of the arguments, from either view."""
        super().form_changed()
        self._say()

    def _show_section(self) -> None:
        self.query_one("#tool-form").display = self._section == "form"
        area = self.query_one("#tool-json", TextArea)
        area.display = self._section == "json"
        self.query_one("#tool-text").display = self._section in ("result", "about")
        if self._section == "json" and area.text != self.form.raw:
            area.load_text(self.form.raw)
        if self._section == "form":
            self.form_changed()
        self._fill()
        self._say()
        self.focus_pane()
        self.refresh_bindings()
        self.post_message(SectionShown(self._section))

    def _fill(self) -> None:
        if self._section == "result":
            self.query_one("#tool-text", TextLines).put(self._result())
        elif self._section == "about":
            self.query_one("#tool-text", TextLines).put(self._about())

    def _about(self) -> list[tuple[str, str]]:
        tool = self._tool
        parts = [(tool.title or tool.name, "bold"), (tool.description or "It has no description.", "")]
        parts += [("", ""), ("what it takes", DIM), (pretty(tool.input_schema), "")]
        if tool.output_schema:
            parts += [("", ""), ("what it gives", DIM), (pretty(tool.output_schema), "")]
        return parts

    def _result(self) -> list[tuple[str, str]]:
        outcome = self._outcome
        if outcome is None:
            return [("Nothing was called yet. c calls the tool (ctrl+r while you write).", DIM)]
        if self._as_json and outcome.content:
            return [(pretty(outcome.content), "")]
        texts = "\n\n".join(outcome.texts)
        if not texts:
            return [(pretty(outcome.content), "")] if outcome.content else [("It gave nothing back.", DIM)]
        return [(texts, "" if outcome.ok else "$text-error")]

    def _say(self) -> None:
        """Show the line at the bottom: the call, its outcome, or the mistake in the arguments."""
        parts: list[tuple[str, str]] = []
        if self._calling:
            seconds = duration(monotonic() - self._began, running=True)
            parts = [
                (f"{self.glyphs.running} calling {seconds}", "$text-primary"),
                ("  escape", KEY),
                (" ends it", DIM),
            ]
        elif self._section == "result" and self._outcome is not None:
            word, style = ("ok", "$text-success") if self._outcome.ok else ("failed", "$text-error")
            shape = self.glyphs.ok if self._outcome.ok else self.glyphs.error
            parts = [(f"{shape} {word} after {duration(self._outcome.seconds)}", style)]
            if self._outcome.content:
                parts += [("  t", KEY), (" text" if self._as_json else " JSON", DIM)]
        elif self.form.raw_mistake:
            parts = [(f"JSON: {self.form.raw_mistake}", "$text-error")]
        elif self.form.schema.problem:
            parts = [(self.form.schema.problem, "$text-warning")]
        elif words := summary(len(self.form.mistakes.fields), self.form.mistakes.note):
            parts = [(words, "$text-warning")]
        else:
            parts = [("ctrl+r" if self._section in ("json", "xml") else "c", KEY), (" calls it", DIM)]
        if self._variable or self._typed.token:
            mask = "******" if self.glyphs.dot == "-" else "••••••"
            source = self._typed.label if self._typed.token else f"${self._variable}"
            parts.append((f"   bearer {source} {mask}", DIM))
        if parts != self._status_parts:
            self._status_parts = parts
            self.query_one("#tool-status", Static).update(Content.assemble(*parts), layout=False)

    def _beat(self) -> None:
        if self._calling:
            self._say()

    def focus_pane(self) -> None:
        if self._section == "form":
            self.focus_fields()
        else:
            own = {"json": "#tool-json", "xml": "#tool-xml"}
            self.screen.set_focus(self.query_one(own.get(self._section, "#tool-text")))

    @on(TextArea.Changed, "#tool-json")
    def _json_typed(self, event: TextArea.Changed) -> None:
        event.stop()
        if self._section == "json":
            self.form.edit_raw(event.text_area.text)
            self._say()

    # Sections

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The keys of a field work on fields; what cannot be taken yet is not left."""
        if not self.is_mounted:
            return True
        if action == "kind":
            return self._section == "result"
        if action in self.OF_FIELDS:
            return self._section == "form" and not self.writing
        return True

    def action_section(self, name: str) -> None:
        """Go to a section."""
        if self.finish_writing():
            self._section = name
            self._show_section()

    def action_kind(self) -> None:
        """Show the result as text, or as JSON."""
        self._as_json = not self._as_json
        self._fill()
        self._say()

    async def action_copy(self) -> None:
        """Copy the arguments as JSON, or the text of the shown section."""
        text = plain(self._result()) if self._section == "result" else self.form.raw
        if self._section == "about":
            text = plain(self._about())
        self.notify(await copy(self.app, text), markup=False)

    def action_leave(self) -> None:
        """One step back: the call, then the section, then the screen."""
        if self._calling and self._call is not None:
            self._call.cancel()
        elif self._section != "form":
            self.action_section("form")
        else:
            self.post_message(PaneLeft())

    def on_unmount(self) -> None:
        """No one waits for the call any more, and the token goes."""
        self._typed.release()
        if self._call is not None:
            self._call.cancel()

    # The call

    def action_bearer(self) -> None:
        """Choose the environment variable whose token goes along."""
        if not self.finish_writing():
            return
        self._section = "form"
        self._show_section()
        hint = "name of an environment variable, or ask to type a token in; empty for none"
        self.write("bearer", self._variable, hint, self._take_bearer)

    def _take_bearer(self, text: str) -> str:
        if text.strip().lower() == "ask":
            self.app.push_screen(masked_token("Bearer for calls of this tool"), self._take_token)
            return ""
        name = text.strip().removeprefix("$")
        if name and not is_variable(name):
            # Perhaps a token was pasted: it is neither kept nor shown.
            return "not the name of a variable; ask takes a token in a line that shows nothing of it"
        self._variable = name
        self._use(NOBODY)
        return ""

    def _take_token(self, token: str | None) -> None:
        if token:
            self._variable = ""
            self._use(principals.typed(token))

    def _use(self, typed: ChatPrincipal) -> None:
        """Send this typed token along, or none: it is forgotten with the form."""
        self._typed.release()
        self._typed = typed
        self._say()

    def action_reset(self) -> None:
        """Throw the arguments away and begin again."""
        self.form = Form(self._tool.input_schema)
        self.begin_fields()
        self._say()

    def action_call(self) -> None:
        """Call the tool; with arguments that are not as the schema says, after a question."""
        if not self.finish_writing() or self._calling:
            return
        if problem := refusal(fleet_of(self)) or self.problem():
            self.notify(problem, severity="warning", markup=False)
            return
        if wrong := self.wrong():
            self.screen.query_one(QuestionLine).ask(
                f"{summary(wrong, '').capitalize()}. Call it anyway?", self._start
            )
        else:
            self._start()

    def _start(self) -> None:
        fleet = fleet_of(self)
        try:
            token = self._typed.token or token_of(self._variable)
        except NotCalled as failed:
            self.notify(str(failed), severity="warning", markup=False)
            return
        if fleet is None or self._calling:
            return
        arguments = self.arguments()
        subject = self.subject
        self._memory.keep(self.key_of(subject), Remembered(self.form.value, self._variable))
        port = fleet

        async def work() -> None:
            try:
                self._outcome = await call(port, subject, arguments, token)
            except BaseException:
                self._outcome = ToolOutcome(
                    False, "", monotonic() - self._began, ("The call was ended here.",)
                )
                raise
            finally:
                self._calling = False
                if self.is_attached and self._outcome is not None:
                    self._section = self.came_back(self._outcome)
                    self._show_section()

        # Before the worker: its task may be over by the time that it is handed back.
        self._began, self._calling = monotonic(), True
        self._call = self.run_worker(
            work(), group="call", exit_on_error=False, description=f"call {subject.tool}"
        )
        self._say()
