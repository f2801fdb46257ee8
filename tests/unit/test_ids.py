"""Random ids: unique in every process."""

import os

from pallas.model.ids import random_bytes, random_hex


def test_ids_are_as_long_as_asked_and_never_the_same() -> None:
    assert len({random_hex(8) for _ in range(5_000)}) == 5_000
    assert [len(random_bytes(number)) for number in (1, 16, 4096, 4095, 7)] == [1, 16, 4096, 4095, 7]


def test_a_process_that_is_forked_has_ids_of_its_own() -> None:
    random_hex(1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, random_bytes(16))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read, 16) != random_bytes(16)
    os.close(read)
    os.close(write)
