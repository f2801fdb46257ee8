"""A whole session for one prompt (SPEC DR-18)."""

from dataclasses import dataclass

from pallas.model import Fault, RunResult


@dataclass(frozen=True, slots=True)
class Delegated:
    """What came of it: ``result``, else ``fault``. ``session_id`` is empty where none could be opened.

    The session is closed by then, as ``task-complete`` or ``task-failed``. ``agent`` is empty where nobody
    could be found.
    """

    session_id: str
    agent: str
    result: RunResult | None = None
    fault: Fault | None = None
