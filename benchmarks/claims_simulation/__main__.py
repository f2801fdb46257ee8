"""`make simulate ARGS="--steps 10000000"`: the claim protocol under failures, and its invariants.

The exit status is 1 when an invariant did not hold.
"""

import argparse
import sys
from statistics import median, quantiles
from time import perf_counter

from ..invariants import INVARIANTS, SIMULATED
from .audit import Audit
from .rules import RULES
from .simulation import Options, Simulation


def main() -> int:
    """Simulate and print; the exit status."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks.claims_simulation", description=__doc__)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--steps", type=int, default=1_000_000, help="events to simulate")
    arguments.add_argument("--replicas", type=int, default=1_000)
    arguments.add_argument(
        "--asynchronous", action="store_true", help="a failover may lose the last transactions"
    )
    arguments.add_argument(
        "--without", action="append", default=[], choices=sorted(RULES), help="a rule to leave out"
    )
    given = arguments.parse_args()
    without = frozenset(given.without)
    options = Options(given.seed, given.steps, given.replicas, not given.asynchronous, without)
    print(f"{given.replicas} replicas, {given.steps:,} steps, --seed {given.seed}", flush=True)
    if without:
        print(f"without: {', '.join(sorted(without))}")
    began = perf_counter()
    simulation = Simulation(options)
    audit = simulation.run()
    seconds = perf_counter() - began
    print(f"{simulation.queue.done:,} events in {seconds:.0f} s, {simulation.queue.now:.0f} s simulated")
    _tell(audit)
    return 1 if audit.violations else 0


def _tell(audit: Audit) -> None:
    for name, number in sorted(audit.counts.items()):
        print(f"{number:>12,}  {name}")
    if len(times := audit.take_over_seconds) > 1:
        p95 = quantiles(times, n=20)[-1]
        print(
            f"a kill until its runs go on: p50 {median(times):.1f} s, p95 {p95:.1f} s, max {max(times):.1f} s"
        )
    for violation in audit.told:
        print(f"\nVIOLATION of {violation.invariant} at {violation.at:.3f} s: {violation.text}")
        for line in violation.story:
            print(f"    {line}")
    print()
    for name in sorted(SIMULATED):
        text, number = INVARIANTS[name], audit.violations[name]
        print(f"{name:<6} {text}: {f'{number:,} violations' if number else 'holds'}")


if __name__ == "__main__":
    sys.exit(main())
