"""What holds the workbench together: look, layout, jumping, notices, and what to do when something breaks."""
