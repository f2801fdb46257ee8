"""What can be done among the durable threads."""

from .action import Action

ACTIONS = (
    Action("threads.open", "threads", "Open thread", "Go on with it in the chat", "choose", "enter", "open"),
    Action("threads.rename", "threads", "Rename thread", "Give it another title", "rename", "e", "rename"),
    Action(
        "threads.delete",
        "threads",
        "Delete thread",
        "Delete it with all its messages, after a question",
        "delete",
        "x,delete",
        "delete",
    ),
    Action("threads.copy", "threads", "Copy thread's id", "Copy its id", "copy_id", "y", "copy id"),
    Action(
        "threads.export", "threads", "Export thread", "Write all of it to a file", "export", "w", "export"
    ),
    Action(
        "threads.only",
        "threads",
        "Threads of one agent",
        "Those of the selected one's agent only, or all again",
        "only",
        "o",
        "only",
    ),
    Action("threads.filter", "threads", "Filter threads", "Show only some", "filter", "slash", "filter"),
    Action("threads.story", "threads", "Thread in full", "Everything about it", "story", "i", "story"),
    Action("threads.refresh", "threads", "Read threads again", "Ask the fleet anew", "refresh", "r"),
    Action("threads.unfilter", "threads", "Show all threads", "Take the filter away", "unfilter", "escape"),
)
