"""`make bench`: print every figure beside its aim."""

import compileall
import sys
from pathlib import Path
from types import ModuleType

from . import (
    answers,
    diffs,
    downstreams,
    drain,
    front,
    idle,
    keys,
    latency,
    ledger,
    load,
    logs,
    models,
    open_day,
    pump,
    recovery,
    reload,
    resources,
    restart,
    startup,
    streams,
    survival,
    terminal,
    verdict,
    workers,
)
from .peers import comparison
from .programs import own_state

ROOT = Path(__file__).resolve().parent.parent
BY_NAME = ("peers", "open_day", "recovery")
"""Parts that are only measured when they are named: one installs what it compares with, all take long."""


def main() -> int:
    """Measure and print; the status is 0 whatever the figures are, since a busy machine is no defect."""
    parts = {
        "answers": answers,
        "diffs": diffs,
        "downstreams": downstreams,
        "drain": drain,
        "front": front,
        "idle": idle,
        "keys": keys,
        "latency": latency,
        "ledger": ledger,
        "load": load,
        "logs": logs,
        "models": models,
        "open_day": open_day,
        "peers": comparison,
        "pump": pump,
        "recovery": recovery,
        "reload": reload,
        "resources": resources,
        "restart": restart,
        "startup": startup,
        "streams": streams,
        "survival": survival,
        "terminal": terminal,
        "verdict": verdict,
        "workers": workers,
    }
    chosen = sys.argv[1:] or [name for name in parts if name not in BY_NAME]
    for name in chosen:
        if name not in parts:
            print(f"no part {name!r}; there are {', '.join(parts)}", file=sys.stderr)
            return 2
    for code in (ROOT / "runtime" / "pallas", ROOT / "pallas_tui"):
        compileall.compile_dir(code, quiet=1)  # as pip does where Pallas is installed
    with own_state():
        for name in chosen:
            print(f"\n{name}: {_about(parts[name])}", flush=True)
            for figure in parts[name].measure():
                print(figure.row(), flush=True)
    return 0


def _about(part: ModuleType) -> str:
    return " ".join((part.__doc__ or "").split())


if __name__ == "__main__":
    sys.exit(main())
