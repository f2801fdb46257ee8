"""What can be done when the fleet could not start."""

from .action import Action

ACTIONS = (
    Action(
        "failure.retry", "failure", "Try again", "Read the project anew and start", "retry", "r", "try again"
    ),
    Action("failure.copy", "failure", "Copy mistakes", "Copy what is wrong", "copy", "y", "copy"),
)
