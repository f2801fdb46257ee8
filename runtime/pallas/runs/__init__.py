"""Runs of messages: the kernel that admits them, turns of conversations, and how turns are stored."""
