"""``make flaky``: run tests several times on a busy machine and count how often each fails.

Usage: ``python tools/flaky_count.py TIMES LOAD [options and files of pytest]``. ``LOAD`` processes compute
without a pause beside the tests and end with this one. The status is not 0 when a test failed.
"""

import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from time import monotonic

import pytest
from suite_run import Outcomes

# A fresh interpreter for each run: modules that tests import stay in the process.
_SPAWN = multiprocessing.get_context("spawn")


def main(times: int, load: int, arguments: Sequence[str]) -> int:
    """Run the tests and print each one that failed, the most often failed first."""
    failed: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    statuses = []
    with _busy(load):
        for number in range(1, times + 1):
            began = monotonic()
            status, found = _run_apart(arguments)
            statuses.append(status)
            failed.update(found.keys())
            reasons |= found
            print(f"\nrun {number} of {times}: {len(found)} failed, {monotonic() - began:.0f} s", flush=True)
    for test, count in failed.most_common():
        print(f"{count:4} of {times}  {test}\n              {reasons[test]}")
    print(f"{len(failed)} tests failed at least once in {times} runs beside {load} busy processes")
    return max(statuses, default=0)


def _run_apart(arguments: Sequence[str]) -> tuple[int, dict[str, str]]:
    """Returns pytest's status, and the reason of each test that failed."""
    receiver, sender = _SPAWN.Pipe(duplex=False)
    process = _SPAWN.Process(target=_run, args=(sender, arguments))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return 1, {"pytest itself": "its process died"}
    finally:
        process.join()


def _run(results: Connection, arguments: Sequence[str]) -> None:
    outcomes = Outcomes()
    status = int(pytest.main(list(arguments), plugins=[outcomes]))
    results.send((status, {test: each.reason for test, each in outcomes.failures.items()}))


@contextmanager
def _busy(count: int) -> Iterator[None]:
    processes = [_SPAWN.Process(target=_compute, args=(os.getpid(),), daemon=True) for _ in range(count)]
    for each in processes:
        each.start()
    try:
        yield
    finally:
        for each in processes:
            each.kill()
            each.join()


def _compute(parent: int) -> None:
    while os.getppid() == parent:
        sum(range(1_000_000))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
