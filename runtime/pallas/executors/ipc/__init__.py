"""Child processes that run an agent's code: how the fleet starts them, talks to them and ends them.

Both process stacks use it: ``executors/process`` (a fast-agent agent) and ``executors/typed`` (a typed
handler). They define only what their messages mean. ``executors/worker`` uses ``child_process`` alone: its
programs speak JSON lines on stdin and stdout.

Fleet side: ``child_process`` starts a program below the ``keeper``, ``child_connection`` sends it calls and
reads what it says. Child side: ``child`` is the program, ``child_loop`` what it runs. Between the two:
``channel`` (frames) and ``child_messages``; ``child_questions`` are requests from the child to the fleet.
"""
