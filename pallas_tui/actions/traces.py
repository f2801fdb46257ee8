"""What can be done in the traces."""

from .action import Action

ACTIONS = (
    Action("traces.open", "traces", "Hop in full", "Everything about the hop", "choose", "enter,i", "open"),
    Action(
        "traces.odd",
        "traces",
        "Only odd hops",
        "Show only hops where something is odd, or all again",
        "odd",
        "o",
        "odd",
    ),
    Action(
        "traces.run", "traces", "Run of hop", "Go to the run in the feed", "elsewhere('feed')", "r", "run"
    ),
    Action(
        "traces.logs",
        "traces",
        "Log of hop's run",
        "Go to what was logged for the run",
        "elsewhere('logs')",
        "l",
        "log",
    ),
    Action("traces.follow", "traces", "Follow hops", "Go to the end and stay there", "follow", "f", "follow"),
    Action("traces.filter", "traces", "Filter hops", "Show only some hops", "filter", "slash", "filter"),
    Action("traces.unfilter", "traces", "Show all hops", "Take filter and choice away", "unfilter", "escape"),
    Action("traces.copy", "traces", "Copy hop", "Copy everything about the hop", "copy", "y"),
)
