"""Processes that a test looks at from outside."""

import psutil


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody reaps counts as gone."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
