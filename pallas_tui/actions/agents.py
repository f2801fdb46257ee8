"""What can be done in the agents pane."""

from .action import Action

ACTIONS = (
    Action(
        "agents.open", "agents", "Open agent", "Talk to the agent, or read why not", "choose", "enter", "open"
    ),
    Action("agents.story", "agents", "Agent in full", "Everything about its state", "story", "i", "story"),
    Action("agents.filter", "agents", "Filter agents", "Show only some agents", "filter", "slash", "filter"),
    Action("agents.unfilter", "agents", "Show all agents", "Take the filter away", "unfilter", "escape"),
    Action("agents.copy", "agents", "Copy agent", "Copy everything about its state", "copy", "y"),
)
