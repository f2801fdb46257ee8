"""Run by path, as a script: become a command that ends when the program that started it ends.

A killed Pallas cannot stop its programs any more; on Linux the kernel does it. Nothing of ours is
imported: this is a few milliseconds between a program and its start.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def leashed(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command as a child that does not outlive this process, even when that is killed."""
    if sys.platform != "linux":
        return command
    return (sys.executable, "-I", "-S", __file__, str(os.getpid()), *command)


def main(parent: int, command: list[str]) -> None:
    """Ask for SIGTERM when ``parent`` ends, then become ``command``; status 127 when there is none."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before we asked
        sys.exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
