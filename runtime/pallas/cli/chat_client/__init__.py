"""`pallas chat`: one message, or a conversation at a prompt, with an agent of a fleet.

``chat_options`` checks the command line, ``chat_command`` finds the fleet and runs the command, ``chat_turn``
sends one message and shows its answer, ``repl`` and ``line_input`` are the prompt, ``chat_host`` carries out
slash commands, and ``chat_terminal`` writes to stdout and stderr. ``chat_requests`` asks the fleet about
agents, threads and runs, ``chat_signals`` handles signals, ``exit_status`` lists the exit statuses.
"""
