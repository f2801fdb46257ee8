"""Agents in an interpreter of their own: the same executor, with a process and a socket in between.

``executor`` is the fleet's side and imports no agent library; ``child`` is the program at the other end.
"""
