"""Each process of tests has ports of its own."""

import subprocess
import sys
from pathlib import Path

from support.ports import free_ports, is_free

GIVES = "from support.ports import free_ports; print(*free_ports(300), flush=True); input()"


def test_processes_are_given_different_ports_and_each_of_them_once() -> None:
    command = [sys.executable, "-c", GIVES]
    with (
        subprocess.Popen(
            command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as first,
        subprocess.Popen(
            command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as second,
    ):
        given = free_ports(300)
        for each in (first, second):
            assert each.stdout is not None
            given += map(int, each.stdout.readline().split())
        for each in (first, second):
            each.communicate("\n")
    assert len(set(given)) == len(given) == 900
    assert all(map(is_free, given))
