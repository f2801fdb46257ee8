"""Agents in an interpreter of their own: the same executor, with a process and a socket in between.

``process_executor`` and ``agent_connection`` are the fleet's side and import no agent library;
``agent_child`` runs in the process. What both process stacks share is in ``executors/ipc``.
"""
