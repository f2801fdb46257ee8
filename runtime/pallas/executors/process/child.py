"""The program of an agent's own process: ``python -m pallas.executors.process.child DESCRIPTOR``.

The agent's port, its conversations and its log are with the fleet, at the other end of the descriptor.
"""

import faulthandler
import socket
import sys


def main() -> None:
    """Serve one agent until the fleet says it is enough or goes away; does not return."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    sys.argv = ["pallas"]
    if sys.stderr is not None:
        faulthandler.enable()
    # A second or two, while the fleet prepares what it is going to say.
    from pallas.executors.process.inside import serve

    serve(sock)


if __name__ == "__main__":
    main()
