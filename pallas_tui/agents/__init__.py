"""What the workbench knows of agents beyond a snapshot: their tree, what is under way, what was looked up."""
