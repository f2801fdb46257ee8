"""The program of every child process: ``python -m pallas.executors.ipc.child MODULE DESCRIPTOR``.

``MODULE`` has the function ``serve(sock)`` for what this child is. The agent's port, its conversations and
its log stay with the fleet, at the other end of the descriptor.
"""

import faulthandler
import io
import socket
import sys
from importlib import import_module


def main() -> None:
    """Serve one agent's code until the fleet says to close or goes away; does not return."""
    module, descriptor = sys.argv[1:]
    sock = socket.socket(fileno=int(descriptor))
    sock.set_inheritable(False)
    sys.argv = ["pallas"]
    if sys.stderr is not None:
        faulthandler.enable()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a printed line is in the log at once
        sys.stdout.reconfigure(line_buffering=True)
    # An agent's imports take a second or two, while the fleet prepares what it is going to send.
    import_module(module).serve(sock)


if __name__ == "__main__":
    main()
