"""The runs of the fleet as feed, run screen and traces show them, made of events; nothing of the screen."""
