"""The program of an agent's own process: ``python -m pallas.executors.process.child DESCRIPTOR``.

The agent's port, its conversations and its log are with the fleet, at the other end of the descriptor.
"""

import faulthandler
import os
import socket
import sys


def main() -> None:
    """Serve one agent until the fleet says it is enough or goes away; does not return."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    sys.argv = ["pallas"]
    if sys.stderr is not None:
        faulthandler.enable()
    status = 1
    try:
        # A second or two, while the fleet prepares what it is going to say.
        from pallas.executors.process.inside import serve

        serve(sock)
    except SystemExit as exit_:  # an agent's code asked for it
        status = exit_.code if isinstance(exit_.code, int) else 1
    except MemoryError:
        status = 97  # messages.OUT_OF_MEMORY: nothing is imported now
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        # Not the interpreter's own end: that waits for the threads of whoever started some.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
