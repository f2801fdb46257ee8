"""Agents in plain Python, run in this process; fast-agent is not imported for them.

- ``handler_executor`` runs turns; ``handler_loader`` finds the handler in the project's code.
- ``handler_shape`` checks its methods, ``handler_answers`` its results, ``handler_faults`` its exceptions.
- ``handler_tasks`` owns the tasks in which its code runs.
"""
