"""What can be done among the durable tasks."""

from .action import Action

ACTIONS = (
    Action("tasks.open", "tasks", "Task in full", "All of it: what came of it", "choose", "enter,i", "read"),
    Action(
        "tasks.thread", "tasks", "Thread of task", "Open what was said in the chat", "thread", "t", "thread"
    ),
    Action("tasks.run", "tasks", "Run of task", "Go to its run in the feed", "run", "f", "run"),
    Action(
        "tasks.cancel",
        "tasks",
        "Cancel task",
        "Ask for it to be cancelled, after a question",
        "cancel",
        "x,delete",
        "cancel",
    ),
    Action(
        "tasks.only",
        "tasks",
        "Tasks of one agent",
        "Those of the selected one's agent only, or all again",
        "only",
        "o",
        "only",
    ),
    Action("tasks.filter", "tasks", "Filter tasks", "Show only some", "filter", "slash", "filter"),
    Action("tasks.copy", "tasks", "Copy task's id", "Copy its id: a key to it", "copy_id", "y", "copy id"),
    Action("tasks.refresh", "tasks", "Read tasks again", "Ask the fleet anew", "refresh", "r"),
    Action("tasks.unfilter", "tasks", "Show all tasks", "Take the filter away", "unfilter", "escape"),
)
