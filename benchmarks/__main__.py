"""`make bench`: print every figure beside its aim."""

import sys

from . import latency, startup


def main() -> int:
    """Measure and print; the status is 0 whatever the figures are, since a busy machine is no defect."""
    parts = {"latency": latency.measure, "startup": startup.measure}
    chosen = sys.argv[1:] or list(parts)
    for name in chosen:
        if name not in parts:
            print(f"no part {name!r}; there are {', '.join(parts)}", file=sys.stderr)
            return 2
    for name in chosen:
        for figure in parts[name]():
            print(figure.row(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
