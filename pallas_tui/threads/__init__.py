"""Durable threads as the workbench knows them; nothing of the screen in here."""

from .book import ThreadBook

__all__ = ["ThreadBook"]
