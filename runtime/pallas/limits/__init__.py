"""Limits on what runs spend: accounts, and the admission of questions to models.

Each run has a chain of accounts: those of its own limits and of the runs above it (``Account``), and those of
its caller and its agent for a day (``DayAccount``). Before a question to a model all of them are asked to
reserve what it may take (``Admission``); afterwards what it took is settled. Where a fleet has a ledger, the
accounts of a day are there, and all replicas share them.
"""
