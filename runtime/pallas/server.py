"""Entry point: ``python -m pallas.server`` is the same as ``pallas``."""

import gc
import sys


def main() -> None:
    """Run the command line and exit with its status."""
    if sys.argv[1:2] == ["check"] and sys.argv[2:3] != ["bearer"]:
        gc.disable()  # It ends before there is garbage, and looking for it takes a tenth of the time.
    from pallas.cli.app import run

    status = run(sys.argv[1:])
    # The interpreter would search all that is left for cycles before it ends: half a second of nothing.
    gc.freeze()
    sys.exit(status)


if __name__ == "__main__":
    main()
