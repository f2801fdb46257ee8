"""What can be done in the feed."""

from .action import Action

ACTIONS = (
    Action(
        "feed.open",
        "feed",
        "Open run",
        "Its facts, its trace, and the raw exchanges",
        "choose",
        "enter",
        "open",
    ),
    Action("feed.toggle", "feed", "Fold or unfold run", "Show or hide its steps", "turn", "space", "fold"),
    Action("feed.fold", "feed", "Fold run", "Hide its steps", "fold", "left"),
    Action("feed.unfold", "feed", "Unfold run", "Show its steps", "unfold", "right"),
    Action("feed.story", "feed", "Run in full", "Everything about the run, as text", "story", "i", "story"),
    Action(
        "feed.cancel",
        "feed",
        "Cancel run",
        "Ask for the selected run to stop",
        "cancel",
        "x,ctrl+k",
        "cancel",
    ),
    Action(
        "feed.logs",
        "feed",
        "Log of run",
        "Go to what was logged for the run",
        "elsewhere('logs')",
        "l",
        "log",
    ),
    Action(
        "feed.traces",
        "feed",
        "Hops of run",
        "Go to the credentials of the run's requests",
        "elsewhere('traces')",
        "t",
        "hops",
    ),
    Action(
        "feed.messages",
        "feed",
        "Messages of run",
        "What its handlers say to each other",
        "messages",
        "m",
    ),
    Action("feed.follow", "feed", "Follow feed", "Go to the end and stay there", "follow", "f", "follow"),
    Action("feed.filter", "feed", "Filter runs", "Show only some runs", "filter", "slash", "filter"),
    Action("feed.unfilter", "feed", "Show all runs", "Take the filter away", "unfilter", "escape"),
    Action("feed.copy", "feed", "Copy run", "Copy everything about the run", "copy", "y"),
)
