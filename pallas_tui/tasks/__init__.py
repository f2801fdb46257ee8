"""Durable tasks as the workbench knows them; nothing of the screen in here."""

from .book import TaskBook

__all__ = ["TaskBook"]
