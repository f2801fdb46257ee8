"""Replicas of one project that are killed, stopped and updated under load, and the account of what was kept.

Three fleets on one PostgreSQL database behind HAProxy, perhaps with a standby that is promoted, or two on one
SQLite file. Callers of all surfaces ask for runs of six steps. Their tools write into a file what they do,
triggers in the database write down which replica changed what, and both are compared at the end.
"""
