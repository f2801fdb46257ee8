"""Entry point: ``python -m pallas.server`` is the same as ``pallas``."""

import sys


def main() -> None:
    """Run the command line and exit with its status."""
    from pallas.cli.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
