"""Reloads what a saved file changes, without a failed call.

``file_watcher`` hears of saved files in the ``watched_folders``. ``file_usage`` says which files matter to
the project (``agents.yaml``, ``.env`` and others) and to each agent. ``reloader`` reads the project's own
files again, ``affected_agents`` plans which agents get a new version, and ``applier`` makes and swaps them,
once the ``verdict_gate`` lets them through. Whether a new version answers, or the old one goes on since the
new one does not start, is decided by ``pallas.fleet.swap``; ``failure_report`` says why.
"""
