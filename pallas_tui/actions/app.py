"""What can be done everywhere."""

from .action import Action

# Plain letters and digits are free while the focus is not in a line of text; the F-keys work always.
# No ctrl+b, ctrl+s, ctrl+o, ctrl+j: terminal multiplexers take those.
ACTIONS = (
    Action(
        "help",
        "app",
        "Help",
        "What the focused pane is and which keys work in it",
        "help",
        "f1,question_mark",
        "help",
    ),
    Action(
        "show.agents",
        "app",
        "Show agents",
        "Go to the list of agents",
        "show('agents')",
        "1,f2",
        group="panes",
    ),
    Action("show.chat", "app", "Show chat", "Go to the conversations", "show('chat')", "2,f3", group="panes"),
    Action(
        "show.feed",
        "app",
        "Show feed",
        "Go to the live progress of all calls",
        "show('feed')",
        "3,f4",
        group="panes",
    ),
    Action("show.logs", "app", "Show logs", "Go to the log", "show('logs')", "4,f5", group="panes"),
    Action(
        "show.traces",
        "app",
        "Show traces",
        "Go to the credentials of each hop",
        "show('traces')",
        "5,f6",
        group="panes",
    ),
    Action(
        "zoom",
        "app",
        "Zoom pane",
        "The focused pane takes the whole screen, or steps back",
        "zoom",
        "z,f8",
        "zoom",
    ),
    Action("quit", "app", "Quit", "Stop the fleet and leave", "quit", "ctrl+q", "quit", priority=True),
    Action("dock.taller", "app", "Taller dock", "More lines for feed and logs", "resize_dock(2)", "plus"),
    Action(
        "dock.shorter", "app", "Shorter dock", "Fewer lines for feed and logs", "resize_dock(-2)", "minus"
    ),
    Action(
        "rail.wider",
        "app",
        "Wider agents pane",
        "More columns for the agents",
        "resize_rail(2)",
        "greater_than_sign",
    ),
    Action(
        "rail.narrower",
        "app",
        "Narrower agents pane",
        "Fewer columns for the agents",
        "resize_rail(-2)",
        "less_than_sign",
    ),
    Action(
        "rail.toggle",
        "app",
        "Hide or show agents",
        "Give the agents' columns to the chat",
        "toggle_rail",
        "b",
    ),
    Action(
        "show.instances", "app", "Instances", "Fleets elsewhere: register, attach, talk", "instances", "n,f10"
    ),
    Action(
        "show.threads",
        "app",
        "Threads",
        "Every conversation that the fleet keeps: read it, go on with it",
        "threads",
        "T,alt+t",
    ),
    Action(
        "show.tasks",
        "app",
        "Tasks",
        "Long work that goes on without its caller: how far it is, what came of it",
        "tasks",
        "K,alt+k",
    ),
    Action(
        "changes",
        "app",
        "What changed",
        "The last versions of all agents, and what is different in each",
        "changes",
        "C",
    ),
    Action(
        "watch.toggle",
        "app",
        "Pause or resume watching",
        "Leave saved files alone for a while, or look after them again",
        "watch",
        "W",
    ),
    Action(
        "watch.reload",
        "app",
        "Reload what changed",
        "Have every agent take what is saved now, also while watching is paused",
        "reload_all",
        "U",
    ),
    Action("jump", "app", "Jump", "Letters on every place, tab and title; one goes there", "jump", "J,f12"),
    Action(
        "layout.reset",
        "app",
        "Reset layout",
        "Every pane as large and where it was at first",
        "reset_layout",
        "",
    ),
    Action("settings", "app", "Settings", "Look at every setting and change it", "settings", "comma,f11"),
    Action("theme.choose", "app", "Theme", "See every theme, choose one for good", "change_theme", ""),
    Action(
        "about",
        "app",
        "About and diagnostics",
        "Versions, terminal, paths, limits, counts; for reports",
        "about",
        "",
    ),
    Action("redraw", "app", "Redraw", "Paint the screen anew", "redraw", "ctrl+l"),
    Action(
        "suspend",
        "app",
        "Suspend",
        "Back to the shell until fg; the fleet stands still too",
        "suspend_process",
        "ctrl+z",
    ),
    Action(
        "theme", "app", "Dark or light", "Switch between the dark and the light theme", "toggle_theme", "f9"
    ),
    Action(
        "back", "app", "Back", "Leave the zoom or the line of text; never quits", "back", "escape", "back"
    ),
    Action(
        "quit.twice",
        "app",
        "Quit (twice)",
        "Pressed twice, stops the fleet and leaves",
        "quit_twice",
        "ctrl+c",
    ),
)
