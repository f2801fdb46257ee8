"""What shall be other in a run that goes on from a step of another one."""

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from pallas.safe_text import without_controls

from ...actions import binding, bindings
from ...runs.fork_change import ForkChange, ForkStep
from ..status_line import StatusLine


class _ForkText(TextArea):
    """Several lines; enter belongs to the dialog."""

    BINDINGS: ClassVar[list[BindingType]] = [binding("field.break")]

    def action_break_line(self) -> None:
        """Break the line."""
        start, end = self.selection
        self._replace_via_keyboard("\n", start, end)

    async def _on_key(self, event: events.Key) -> None:
        # Here and not by way of the bindings, which act after the letters typed just behind were taken in.
        if event.key != "enter" and event.is_printable:
            return
        bound = self.screen.active_bindings.get(event.key)
        if bound is not None and bound.enabled and bound.node in (self, self.screen):
            event.stop()
            event.prevent_default()
            await bound.node.run_action(bound.binding.action)

    async def _on_paste(self, event: events.Paste) -> None:
        # The text area, whose turn is next, inserts this. A terminal sends a carriage return for each line.
        event.text = without_controls(event.text.replace("\r\n", "\n").replace("\r", "\n"))


class _Again(Static, can_focus=True):
    """Whether the call is made again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        binding("fork.again", key="space", action="screen.again", show=False)
    ]

    async def on_click(self, event: events.Click) -> None:
        """The other way round."""
        event.stop()
        await self.run_action("screen.again")


class ForkScreen(ModalScreen[ForkChange | None]):
    """Asks for the question and the model, or for the result of a call, and for the version of the project;
    ends with None if it is left.

    A call is made again only if that is chosen: else what the dialog holds is its result.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("fork")

    def __init__(self, step: ForkStep) -> None:
        super().__init__()
        self._step = step
        self._is_again = False
        self._text = _ForkText(
            step.result if step.is_call else step.question,
            id="fork-text",
            compact=True,
            highlight_cursor_line=False,
            tab_behavior="focus",
            disabled=bool(step.fixed),
        )
        self._began = self._text.text
        self._model = Input(placeholder=f"as it was: {step.name}", compact=True, id="fork-model")
        self._version = Input(
            placeholder="the agents as they are now; or a commit, a branch, a tag",
            compact=True,
            id="fork-version",
        )

    def compose(self) -> ComposeResult:
        with Vertical(classes="chat-dialog", id="fork-dialog") as box:
            box.border_title = Content(f"From step {self._step.number}: {self._step.title}")
            yield Static("Result" if self._step.is_call else "Question", classes="fork-label")
            yield self._text
            if self._step.is_call:
                yield _Again(id="fork-again")
            else:
                yield Static("Model", classes="fork-label")
                yield self._model
            yield Static("Version", classes="fork-label")
            yield self._version
            yield Static(markup=False, classes="chat-dialog-hint")
            yield StatusLine()

    def on_mount(self) -> None:
        """Write at once."""
        self._text.move_cursor(self._text.document.end)
        self._write_on()
        self._tell()

    def _write_on(self) -> None:
        """Focus what can be changed."""
        if self._step.is_call:
            (self.query_one(_Again) if self._is_again else self._text).focus()
        else:
            (self._model if self._step.fixed else self._text).focus()

    def _tell(self, problem: str = "") -> None:
        step = self._step
        if step.is_call:
            mark = "[x]" if self._is_again else "[ ]"
            self.query_one(_Again).update(Content(f"{mark} Make the call again, instead of this result"))
        if self._is_again:
            text = f"{step.name} is called for real, with the arguments of step {step.number}."
        elif step.is_call:
            text = " ".join(filter(None, ("Nothing is called: this text is the result.", step.remark)))
        else:
            text = step.fixed or "The model is asked again; what you do not change stays as it was."
        hint = self.query_one(".chat-dialog-hint", Static)
        hint.update(Content(problem or text))
        hint.set_class(bool(problem), "-problem")
        hint.set_class(self._is_again and not problem, "-careful")

    def action_again(self) -> None:
        """Make the call again, or take the text as its result after all."""
        self._is_again = not self._is_again
        self._text.disabled = self._is_again
        self._write_on()
        self._tell()

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_go_on()

    def action_go_on(self) -> None:
        """Take what stands here."""
        text, version = self._text.text, self._version.value.strip()
        if self._step.is_call:
            self.dismiss(ForkChange(result=None if self._is_again else text, version=version))
            return
        is_other = text != self._began
        if is_other and not text.strip():
            self._tell("A question is missing: write one, or leave with escape.")
            return
        message, model = text if is_other else "", self._model.value.strip()
        self.dismiss(ForkChange(message=message, model=model, version=version))

    def action_leave(self) -> None:
        """Nothing goes on after all."""
        self.dismiss(None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only a call can be made again."""
        return self._step.is_call if action == "again" else True
