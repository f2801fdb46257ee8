"""What an action is: its words, what runs, and on which keys."""

from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

Scope = Literal[
    "app",
    "vim",
    "list",
    "filter",
    "question",
    "agents",
    "agent",
    "changes",
    "instances",
    "failure",
    "broken",
    "chat",
    "prompt",
    "path_line",
    "transcript",
    "calls",
    "queue",
    "find",
    "pictures",
    "tray",
    "chooser",
    "chooser_screen",
    "confirm",
    "prompts",
    "side",
    "feed",
    "run",
    "tests",
    "verdicts",
    "judged_run",
    "test_recording",
    "exchange",
    "step",
    "diff",
    "credentials",
    "messages",
    "envelope",
    "send",
    "replay",
    "todos",
    "threads",
    "tasks",
    "replicas",
    "questions",
    "question_card",
    "question_form",
    "tool",
    "field",
    "threads_screen",
    "tasks_screen",
    "questions_screen",
    "todos_screen",
    "replicas_screen",
    "tests_screen",
    "verdicts_screen",
    "instances_screen",
    "messages_screen",
    "single_screen",
    "sheet",
    "help_screen",
    "settings_screen",
    "setting_line",
    "line_screen",
    "fork",
    "lock",
    "choice",
    "picture",
    "files",
    "url_line",
    "title_line",
    "logs",
    "log_list",
    "log_export",
    "log_filters",
    "record",
]
"""The widget or the screen that has the action: its class takes ``bindings(scope)``."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can be done."""

    id: str
    """The name in the ``keys`` of the settings file. It stays the same from version to version."""
    scope: Scope
    title: str
    """The name in the palette."""
    help: str
    run: str
    """The action that Textual calls, in the namespace of the widget that has the scope."""
    keys: str
    """The default keys in Textual's names, separated by commas; empty for what only the palette offers."""
    hint: str = ""
    """The word on the bottom line. Without a hint and a group the action is not offered there."""
    priority: bool = False
    """Whether the keys are looked at before those of the focused widget."""
    group: str = ""
    """Actions of one group share this word on the bottom line."""
    navigation: bool = False
    """Whether it only moves about or edits a line: the palette leaves it out, the help lists it last."""

    def binding(self) -> Binding:
        """The action on its default keys; the id lets the user's keymap replace them."""
        return Binding(
            self.keys,
            self.run,
            self.hint or self.title,
            show=bool(self.hint or self.group),
            priority=self.priority,
            tooltip=self.help,
            id=self.id,
            group=Binding.Group(self.group, compact=True) if self.group else None,
        )
