"""`make bench`: print every figure beside its aim."""

import sys
from types import ModuleType

from . import (
    drain,
    front,
    keys,
    latency,
    ledger,
    load,
    logs,
    models,
    pump,
    reload,
    resources,
    restart,
    startup,
)


def main() -> int:
    """Measure and print; the status is 0 whatever the figures are, since a busy machine is no defect."""
    parts = {
        "drain": drain,
        "front": front,
        "keys": keys,
        "latency": latency,
        "ledger": ledger,
        "load": load,
        "logs": logs,
        "models": models,
        "pump": pump,
        "reload": reload,
        "resources": resources,
        "restart": restart,
        "startup": startup,
    }
    chosen = sys.argv[1:] or list(parts)
    for name in chosen:
        if name not in parts:
            print(f"no part {name!r}; there are {', '.join(parts)}", file=sys.stderr)
            return 2
    for name in chosen:
        print(f"\n{name}: {_about(parts[name])}", flush=True)
        for figure in parts[name].measure():
            print(figure.row(), flush=True)
    return 0


def _about(part: ModuleType) -> str:
    return " ".join((part.__doc__ or "").split())


if __name__ == "__main__":
    sys.exit(main())
