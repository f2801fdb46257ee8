"""The process that runs a fleet: its machine, user and pid, for those who attach to it."""

import os
import pwd
from contextlib import suppress
from socket import gethostname


def owner() -> dict[str, str | int]:
    """This process, as the control API names it: ``host``, ``user`` (if it has a name) and ``pid``."""
    found: dict[str, str | int] = {"host": gethostname(), "pid": os.getpid()}
    with suppress(KeyError):  # a container may run under a number alone
        found["user"] = pwd.getpwuid(os.getuid()).pw_name
    return found
