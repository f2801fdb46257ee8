"""The runs of the fleet for feed, run screen and credentials, built from events.

Nothing here imports the screen.
"""
