"""Runs of messages: admission, turns of conversations, and how turns are stored.

``kernel`` is the entry: surfaces and sessions call its methods (run, open, cancel, drain, close) and never
hold an executor, so an executor can be exchanged while they work. ``run`` is one run in flight, ``in_flight``
the set of them. ``conversations`` keeps conversations in memory, with their owners and their locks; ``turns``
does one turn: it loads the conversation, makes room (``compaction``), asks the executor and records the
answer. ``thread_store`` and ``turn_writer`` make a conversation durable in the ledger: ``ledger_writes`` does
their writes, and ``retry_queue`` repeats those that failed. ``keyed_runs`` and ``run_keys`` are calls that
are made again with a key, ``run_results`` the runs that they join. ``run_recorder`` writes runs and their
events. ``agent_directory`` says which agents a principal may run and which one a call means;
``session_counts`` counts open sessions per agent. ``outcomes`` and ``partial_text`` are what a caller gets
when a run begins or is cut short, ``chat_messages`` reads the ``messages`` parameter.
"""
