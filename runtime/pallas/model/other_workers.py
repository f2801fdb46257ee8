"""The other worker processes of a project, as its parts in one process reach them."""

from collections.abc import Callable
from typing import Any, Final, Protocol

CANCEL_RUN: Final = "cancel run"
CANCEL_TASK: Final = "cancel task"
CATALOG: Final = "catalog"
CANCEL_PROMPT: Final = "cancel prompt"
CLOSE_SESSION: Final = "close session"
ANSWER_QUESTION: Final = "answer question"
"""Topics of what they tell each other: an id; that the catalog has changed; a session and its run; a session
and the reason; the id of a question that was answered.
"""


class OtherWorkers(Protocol):
    """Passes short notes on. A note to a process that is just starting or ending is lost."""

    def tell(self, topic: str, body: Any) -> None:
        """Have all other processes hear ``body``, a JSON value, under that topic; returns at once."""
        ...

    def hear(self, topic: str, handler: Callable[[Any], object]) -> None:
        """Call ``handler`` in the event loop with what other processes say under that topic."""
        ...
