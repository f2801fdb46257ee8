"""The runs of the fleet for feed, run screen and traces, built from events.

Nothing here imports the screen.
"""
