"""Reports the text of one run as its model writes it, and the model calls that are made again."""

from pallas.model import ModelRetry, TextDelta
from pallas.safe_text import sanitize

from ..base import Emit


class AttemptEvents:
    """The events of one run's model calls; ``written`` counts the characters of the last one's text."""

    def __init__(self, run_id: str, agent: str, emit: Emit) -> None:
        self._run_id = run_id
        self._agent = agent
        self._emit = emit
        self.written = 0

    def text(self, piece: str, reasoning: bool) -> None:
        """Report a piece of text."""
        if not reasoning:
            self.written += len(piece)
        self._delta(piece, reasoning=reasoning)

    def rollback(self) -> None:
        """Report that the text of this attempt does not count."""
        self._delta("", rollback=True)

    def commit(self) -> None:
        """Note that a call has ended: the text of the next one is counted from 0."""
        self.written = 0

    def retry(self, reason: str, retry: int, retries: int, wait: float) -> None:
        """Report that a call failed, and is made again after ``wait`` seconds."""
        written, self.written = self.written, 0
        self._emit(
            ModelRetry(
                run_id=self._run_id,
                agent=self._agent,
                reason=reason,
                retry=retry,
                retries=retries,
                wait=wait,
                characters=written,
            )
        )

    def _delta(self, piece: str, *, reasoning: bool = False, rollback: bool = False) -> None:
        self._emit(
            TextDelta(
                run_id=self._run_id,
                agent=self._agent,
                text=sanitize(piece),
                reasoning=reasoning,
                rollback=rollback,
            )
        )
