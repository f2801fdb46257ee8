"""What can be done in the agents pane."""

from .action import Action

ACTIONS = (
    Action(
        "agents.open", "agents", "Open agent", "Talk to the agent, or read why not", "choose", "enter", "open"
    ),
    Action(
        "agents.details",
        "agents",
        "Agent details",
        "Its tools, instruction, registry entry and source",
        "details",
        "d",
        "details",
    ),
    Action(
        "agents.tools", "agents", "Agent's tools", "Its tools and its downstreams'", "tools", "t", "tools"
    ),
    Action("agents.story", "agents", "Agent in full", "Everything about its state", "story", "i", "story"),
    Action(
        "agents.reload",
        "agents",
        "Reload agent",
        "Read its definition anew; it answers on meanwhile",
        "control('reload')",
        "r",
        "reload",
    ),
    Action("agents.start", "agents", "Start agent", "Start a stopped agent", "control('start')", "s"),
    Action(
        "agents.stop", "agents", "Stop agent", "Stop it, after a question", "control('stop')", "x", "stop"
    ),
    Action(
        "agents.restart",
        "agents",
        "Restart agent",
        "Stop and start it, after a question",
        "control('restart')",
        "R",
    ),
    Action(
        "agents.changes",
        "agents",
        "Changes of agent",
        "Its versions, and what changed",
        "changes",
        "c",
        "changes",
    ),
    Action(
        "agents.rollback",
        "agents",
        "Roll back agent",
        "Put the version before in its place, after a question",
        "control('rollback')",
        "B",
    ),
    Action(
        "agents.messages",
        "agents",
        "Messages of agent",
        "Those of the last run in which it sent or got one",
        "messages",
        "m",
    ),
    Action("agents.send", "agents", "Send message", "Write one to the agent by a form", "send", "w"),
    Action("agents.edit", "agents", "Edit agent", "Open where it is configured", "edit", "e", "edit"),
    Action("agents.fold", "agents", "Fold agent", "Hide what is below it, or go up", "fold(True)", "left"),
    Action("agents.unfold", "agents", "Unfold agent", "Show what is below it", "fold(False)", "right"),
    Action("agents.filter", "agents", "Filter agents", "Show only some agents", "filter", "slash", "filter"),
    Action("agents.unfilter", "agents", "Show all agents", "Take the filter away", "unfilter", "escape"),
    Action("agents.copy", "agents", "Copy agent", "Copy everything about its state", "copy", "y"),
)
