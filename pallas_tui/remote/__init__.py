"""A fleet in another process or on another machine, over its control API. Knows nothing of the screen."""
