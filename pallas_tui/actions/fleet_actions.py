"""What can be done with agents, with their versions, and with the fleets elsewhere."""

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
    Action(
        "agents.state", "agents", "Agent in full", "Everything about its state", "full_text", "i", "state"
    ),
    Action(
        "agents.reload",
        "agents",
        "Reload agent",
        "Read its definition again; it keeps answering",
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
        "Restore the previous version, after a question",
        "control('rollback')",
        "B",
    ),
    Action(
        "agents.messages",
        "agents",
        "Messages of agent",
        "The messages of the last run in which it sent or received one",
        "messages",
        "m",
    ),
    Action("agents.send", "agents", "Send message", "Write a message to the agent in a form", "send", "w"),
    Action("agents.edit", "agents", "Edit agent", "Open where it is configured", "edit", "e", "edit"),
    Action("agents.fold", "agents", "Fold agent", "Hide what is below it, or go up", "fold(True)", "left"),
    Action("agents.unfold", "agents", "Unfold agent", "Show what is below it", "fold(False)", "right"),
    Action("agents.filter", "agents", "Filter agents", "Show only some agents", "filter", "slash", "filter"),
    Action("agents.unfilter", "agents", "Show all agents", "Clear the filter", "unfilter", "escape"),
    Action("agents.copy", "agents", "Copy agent", "Copy everything about its state", "copy", "y"),
    Action(
        "agent.call", "agent", "Call tool", "A form that calls the selected tool", "choose", "enter", "call"
    ),
    Action("agent.leave", "agent", "Back to the fleet", "One step back", "leave", "escape,q", "back"),
    Action(
        "agent.overview",
        "agent",
        "Overview of agent",
        "Its state",
        "section('overview')",
        "1",
        group="sections",
    ),
    Action(
        "agent.tools",
        "agent",
        "Tools of agent",
        "Its tools and those of what it calls",
        "section('tools')",
        "2",
        group="sections",
    ),
    Action(
        "agent.instruction",
        "agent",
        "Instruction of agent",
        "Its instruction text",
        "section('instruction')",
        "3",
        group="sections",
    ),
    Action(
        "agent.registry",
        "agent",
        "Registry entry of agent",
        "Its entry in the registry",
        "section('registry')",
        "4",
        group="sections",
    ),
    Action("agent.next", "agent", "Next section", "The next section", "step(1)", "tab"),
    Action("agent.previous", "agent", "Previous section", "The previous section", "step(-1)", "shift+tab"),
    Action("agent.look_up", "agent", "Look up again", "Look everything up again", "look_up", "u", "look up"),
    Action("agent.edit", "agent", "Edit this agent", "Open where it is configured", "edit", "e", "edit"),
    Action("agent.edit_code", "agent", "Edit code of agent", "Open its code or its card", "edit_code", "E"),
    Action(
        "agent.reload", "agent", "Reload this agent", "Read its definition again", "control('reload')", "r"
    ),
    Action("agent.start", "agent", "Start this agent", "Start it", "control('start')", "s"),
    Action("agent.stop", "agent", "Stop this agent", "Stop it, after a question", "control('stop')", "x"),
    Action(
        "agent.restart", "agent", "Restart this agent", "Restart, after a question", "control('restart')", "R"
    ),
    Action(
        "agent.rollback",
        "agent",
        "Roll back this agent",
        "Previous version, after a question",
        "control('rollback')",
        "B",
    ),
    Action("agent.filter", "agent", "Filter tools", "Show only some tools", "filter", "slash", "filter"),
    Action(
        "agent.changes",
        "agent",
        "Changes of this agent",
        "Its versions, and what changed",
        "changes",
        "c",
        "changes",
    ),
    Action(
        "agent.accept",
        "agent",
        "Accept tools of server",
        "Show what the server changed, and write it into tools.lock",
        "accept",
        "a",
        "accept",
    ),
    Action(
        "agent.subscribe",
        "agent",
        "Subscribe to resource",
        "Read the resource again with each update, or no longer",
        "subscribe",
        "w",
        "subscribe",
    ),
    Action("agent.copy", "agent", "Copy section", "Copy what the section shows", "copy", "y"),
    Action("agent.copy_source", "agent", "Copy source line", "Where it is configured", "copy_source", "Y"),
    Action(
        "changes.read", "changes", "Read change", "Go to the differences, and back", "read", "enter", "read"
    ),
    Action(
        "changes.edit", "changes", "Edit what changed", "Open the file where it changed", "edit", "e", "edit"
    ),
    Action("changes.copy", "changes", "Copy change", "Copy all differences", "copy", "y", "copy"),
    Action(
        "changes.rollback",
        "changes",
        "Roll back this version",
        "Restore the previous version, after a question",
        "control('rollback')",
        "B",
        "roll back",
    ),
    Action(
        "changes.reload",
        "changes",
        "Reload agent of change",
        "Read it again",
        "control('reload')",
        "r",
        "reload",
    ),
    Action("changes.whole", "changes", "All agents or one", "Its versions only, or all", "whole", "a", "all"),
    Action(
        "instances.open", "instances", "Open line", "Attach the instance, or talk", "choose", "enter", "open"
    ),
    Action(
        "instances.register", "instances", "Register instance", "Add a registry's URL", "register", "a", "add"
    ),
    Action("instances.attach", "instances", "Attach instance", "Connect to all its agents", "attach", "t"),
    Action("instances.detach", "instances", "Detach instance", "Detach its agents", "detach", "d", "detach"),
    Action(
        "instances.refresh",
        "instances",
        "Read instance again",
        "Its registry and health",
        "refresh",
        "r",
        "read",
    ),
    Action(
        "instances.remove",
        "instances",
        "Remove instance",
        "Detach and forget it",
        "remove",
        "x,delete",
        "remove",
    ),
    Action(
        "instances.details", "instances", "Line in full", "Everything about it", "full_text", "i", "details"
    ),
    Action(
        "instances.filter",
        "instances",
        "Filter instances",
        "Show only some lines",
        "filter",
        "slash",
        "filter",
    ),
    Action("instances.unfilter", "instances", "Show all instances", "Clear the filter", "unfilter", "escape"),
    Action("instances.copy", "instances", "Copy line", "Copy everything about it", "copy", "y"),
    Action(
        "failure.attach",
        "failure",
        "Attach",
        "Attach to the fleet of this project that runs already",
        "attach",
        "a",
        "attach",
    ),
    Action(
        "failure.retry", "failure", "Try again", "Read the project again and start", "retry", "r", "try again"
    ),
    Action("failure.copy", "failure", "Copy mistakes", "Copy what is wrong", "copy", "y", "copy"),
    Action(
        "broken.rebuild",
        "broken",
        "Rebuild pane",
        "Discard it and make a new one",
        "rebuild",
        "r",
        "rebuild",
    ),
    Action("broken.copy", "broken", "Copy report", "Copy what happened to the pane", "copy", "y", "copy"),
)
