"""State of agents beyond a snapshot: their tree, verbs in progress, details and tool calls."""
