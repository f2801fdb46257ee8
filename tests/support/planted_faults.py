"""Tests with a fault, for the tests of what runs tests. They need ``FAULTY_IMPORTS`` before them."""

FAULTY_IMPORTS = """
import os, signal, subprocess, time
from pathlib import Path
import pytest
"""
FAILS = """
def test_that_fails():
    assert False, "a fault"
"""
HANGS = """
def test_that_hangs():
    time.sleep(600)
"""
KILLS = """
def test_that_kills_its_worker():
    os.kill(os.getpid(), signal.SIGKILL)
"""
LEAVES = """
def test_that_leaves_a_process():
    process = subprocess.Popen(["sleep", "600"])
    Path("pids").open("a").write(f"{process.pid}\\n")
"""
