"""Tasks: long work with a durable handle. A task outlives the connection of the caller that began it.

``tasks`` begins, follows, answers, cancels and lists tasks and writes each one to the ledger before its work
begins. ``task_work`` is one task under way: its progress, its questions to the caller (``pallas.asking``),
its end.
"""

from .task_memory import TaskMemory as TaskMemory
from .task_work import MakeRun as MakeRun
from .task_work import TaskOutcome as TaskOutcome
from .task_work import is_ended as is_ended
from .tasks import Tasks as Tasks
