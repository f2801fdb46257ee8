"""What can be done on the screen of one agent."""

from .action import Action

ACTIONS = (
    Action(
        "agent.call", "agent", "Call tool", "A form that calls the selected tool", "choose", "enter", "call"
    ),
    Action("agent.leave", "agent", "Back to the fleet", "One step back", "leave", "escape,q", "back"),
    Action(
        "agent.overview",
        "agent",
        "Overview of agent",
        "How it is",
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
        "What it is told",
        "section('instruction')",
        "3",
        group="sections",
    ),
    Action(
        "agent.registry",
        "agent",
        "Registry entry of agent",
        "What the registry says of it",
        "section('registry')",
        "4",
        group="sections",
    ),
    Action("agent.next", "agent", "Next section", "The next section", "step(1)", "tab"),
    Action("agent.previous", "agent", "Section before", "The section before", "step(-1)", "shift+tab"),
    Action("agent.look_up", "agent", "Look up again", "Ask for everything anew", "look_up", "u", "look up"),
    Action("agent.edit", "agent", "Edit this agent", "Open where it is configured", "edit", "e", "edit"),
    Action("agent.edit_code", "agent", "Edit code of agent", "Open its code or its card", "edit_code", "E"),
    Action(
        "agent.reload", "agent", "Reload this agent", "Read its definition anew", "control('reload')", "r"
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
        "The version before, after a question",
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
    Action("agent.copy", "agent", "Copy section", "Copy what the section shows", "copy", "y"),
    Action("agent.copy_source", "agent", "Copy source line", "Where it is configured", "copy_source", "Y"),
)
