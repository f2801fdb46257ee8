"""The program of an isolated handler: ``python -m pallas.executors.typed.inside DESCRIPTOR``.

It has the handler's code and what goes through that, and knows nothing of the fleet beside.
"""

import faulthandler
import io
import socket
import sys


def main() -> None:
    """Serve one handler until the fleet says it is enough or goes away; does not return."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    sys.argv = ["pallas"]
    if sys.stderr is not None:
        faulthandler.enable()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a line is in the log when it was printed
        sys.stdout.reconfigure(line_buffering=True)
    from pallas.executors.typed.inside_loop import serve

    serve(sock)


if __name__ == "__main__":
    main()
