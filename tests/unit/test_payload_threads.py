"""Types of payloads that several threads of a new process make at once."""

import subprocess
import sys

import pytest

THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from pallas.payloads import PayloadType

@dataclass
class Said:
    text: str
    number: int

start = Barrier(8)

def make(_):
    start.wait()
    return PayloadType.of(Said).name

sys.setswitchinterval(1e-6)
with ThreadPoolExecutor(8) as threads:
    assert set(threads.map(make, range(8))) == {"Said"}
"""


@pytest.mark.slow
def test_threads_that_make_the_first_types_of_a_process_do_not_break_each_other() -> None:
    # Each process makes its built-in types once: without care about every third one fails.
    for _ in range(4):
        subprocess.run([sys.executable, "-c", THREADS], check=True, timeout=60)
