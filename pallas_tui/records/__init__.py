"""Records of the fleet as the workbench knows them: threads, tasks, todos. Nothing here needs a screen."""
