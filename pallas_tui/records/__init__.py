"""Records of the fleet as the workbench knows them: threads, tasks, todos, replicas. Without a screen."""
