"""Long work with a durable handle: it outlives the connection that asked for it, and can be come back for."""

from .tasks import Tasks as Tasks
from .work import Finished as Finished
from .work import MakeRun as MakeRun
from .work import is_over as is_over
