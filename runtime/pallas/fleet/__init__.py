"""A project's agents while they live: start, stop, versions, reload, restarts and ports."""
