"""What can be done on the screen of versions and what is different in them."""

from .action import Action

ACTIONS = (
    Action(
        "changes.read", "changes", "Read change", "Go to the differences, and back", "read", "enter", "read"
    ),
    Action("changes.edit", "changes", "Edit what changed", "Open the file at its line", "edit", "e", "edit"),
    Action("changes.copy", "changes", "Copy change", "Copy all of what is different", "copy", "y", "copy"),
    Action(
        "changes.rollback",
        "changes",
        "Roll back this version",
        "Put the version before in its place, after a question",
        "control('rollback')",
        "B",
        "roll back",
    ),
    Action(
        "changes.reload",
        "changes",
        "Reload agent of change",
        "Read it anew",
        "control('reload')",
        "r",
        "reload",
    ),
    Action("changes.whole", "changes", "All agents or one", "Its versions only, or all", "whole", "a", "all"),
)
