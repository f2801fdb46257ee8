"""The control API: a fleet as a whole, for whoever holds its token; beside the registry, on its port."""
