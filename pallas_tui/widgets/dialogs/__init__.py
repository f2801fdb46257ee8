"""Screens that any pane opens for an answer: a choice, a line of text, files, a picture in full."""
