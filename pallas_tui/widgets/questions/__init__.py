"""The screen of questions to people."""

from .questions_pane import QuestionsPane

__all__ = ["QuestionsPane"]
