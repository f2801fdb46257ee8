"""What can be done on the board of todos."""

from .action import Action

ACTIONS = (
    Action("todos.run", "todos", "Run of todo", "Go to its run in the feed", "choose", "enter,f", "run"),
    Action("todos.messages", "todos", "Messages of todo", "Those of its run", "messages", "m", "messages"),
    Action("todos.story", "todos", "Todo in full", "Everything about it", "story", "i", "story"),
    Action(
        "todos.closed", "todos", "Hide closed todos", "Only what is still to be done, or all", "closed", "o"
    ),
    Action("todos.copy", "todos", "Copy todo", "Copy everything about it", "copy", "y", "copy"),
    Action("todos.filter", "todos", "Filter todos", "Show only some", "filter", "slash", "filter"),
    Action("todos.unfilter", "todos", "Show all todos", "Take the filter away", "unfilter", "escape"),
)
