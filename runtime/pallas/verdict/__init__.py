"""Which recorded runs would go differently with the files as they are: said on each save, without a model.

``warm_judge`` is the fleet's side: it keeps ``fork_program`` running, a process that has imported everything
and forks at each save. The fork is a ``judge``: it replays the ``affected_units`` of the ``judged_runs`` and
says in the words of ``verdict_words`` what became of each. ``live_judge`` asks models from the first
difference on, where that is wanted; ``live_words`` says what came of it.
"""
