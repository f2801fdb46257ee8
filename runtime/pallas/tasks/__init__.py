"""Long work with a durable handle: it outlives the connection that asked for it, and can be come back for."""

from .task_work import MakeRun as MakeRun
from .task_work import TaskOutcome as TaskOutcome
from .task_work import is_over as is_over
from .tasks import Tasks as Tasks
