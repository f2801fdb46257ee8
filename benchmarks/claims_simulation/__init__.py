"""A simulation of the claim protocol of the ledger, on PostgreSQL: replicas, runs, tool calls and failures.

Everything random comes from one seed, and time is simulated, so a simulation can be repeated. The database
is a store whose transactions happen one after the other; replicas do what ``pallas.ledger.claims``,
``advisory_locks``, ``turn_statements`` and ``pallas.runs.turn_writer`` do. The invariants of durable runs are
checked while it runs (``benchmarks.invariants``).
"""
