"""What can be done about a pane that broke."""

from .action import Action

ACTIONS = (
    Action(
        "broken.rebuild", "broken", "Make pane anew", "Throw it away and make another", "rebuild", "r", "anew"
    ),
    Action("broken.copy", "broken", "Copy report", "Copy what happened to the pane", "copy", "y", "copy"),
)
