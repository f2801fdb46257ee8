"""Decides on restarts: when an agent or program that failed is started again, and when no more.

``restart_policy`` decides from the configuration and the failures so far: again after a delay, a crash loop,
or never. ``supervisor`` waits for the delay and starts again. ``agent_lifecycle`` starts one agent, hears
when its executor breaks, and asks both. ``failure_outcome`` words the state and the message.
``dependency_health`` degrades the agents that need one that failed.
"""
