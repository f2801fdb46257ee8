"""Signals that are heard whatever the interpreter is doing."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from pallas.cli.process_signals import DONE, DRAINING, RELOAD_SIGNAL, STOP_SIGNALS, Signals


@pytest.mark.parametrize("number", [*STOP_SIGNALS, RELOAD_SIGNAL])
def test_a_signal_is_heard_and_the_earlier_handler_comes_back(number: signal.Signals) -> None:
    earlier = signal.getsignal(number)
    with Signals() as signals:
        os.kill(os.getpid(), number)
        assert signals.wait(60) == number
    assert signal.getsignal(number) == earlier


def test_the_end_of_what_is_waited_beside_is_heard_from_its_thread() -> None:
    with Signals() as signals:
        for what in (DRAINING, DONE):
            thread = threading.Thread(target=signals.note, args=(what,))
            thread.start()
            assert signals.wait(60) == what
            thread.join()
    signals.note(DONE)  # too late, and no harm


def test_nothing_within_the_time_is_none() -> None:
    with Signals() as signals:
        assert signals.wait(0) is None


def test_other_signals_are_not_taken_for_a_stop() -> None:
    earlier = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert signals.wait(0) is None
            signals.note(DONE)
            assert signals.wait(60) == DONE
    finally:
        signal.signal(signal.SIGUSR1, earlier)


def test_it_is_heard_while_other_threads_sleep_and_compute() -> None:
    program = """
import os, threading, time
from pallas.cli.process_signals import Signals
def compute():
    while True:
        pass

with Signals() as signals:
    for work in (lambda: time.sleep(600), compute):
        threading.Thread(target=work, daemon=True).start()
    print("ready", flush=True)
    heard = signals.wait(60)
    os._exit(7 if heard else 8)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 7
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
