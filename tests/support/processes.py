"""Processes that a test looks at from outside."""

from contextlib import suppress

import psutil


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody reaps counts as gone."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def has_ended(process: psutil.Process) -> bool:
    """Whether a process has ended, though another one may have its number by now; a zombie has ended too."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def below(pid: int, word: str) -> list[psutil.Process]:
    """The processes below one that have the word in their command; those that end meanwhile are left out."""
    found = []
    for each in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if word in " ".join(each.cmdline()):
                found.append(each)
    return found
