"""A process that the fork server made is what `python -m` would have made."""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import pallas_process
from support.waiting import until

from pallas.executors.ipc import child_process
from pallas.fleet.parent_death import leashed
from pallas.processes import child_program

LONG = 180
"""Seconds: some of what these tests start imports all of Pallas."""
PROBE = """
import gc, json, os, resource, signal, sys, threading, time, warnings

def stream(each):
    return [each.name, each.mode, each.encoding, each.errors, each.newlines, each.line_buffering,
            each.write_through, each.isatty(), type(each.buffer).__name__, each.fileno()]

print(json.dumps({
    "zone": [time.timezone, *time.tzname],
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "cwd": os.getcwd(),
    "environ": dict(os.environ), "flags": list(sys.flags), "name": __name__, "file": __file__,
    "main": sys.modules["__main__"].__dict__ is globals(), "spec": __spec__.name,
    "cached": sys.dont_write_bytecode,
    "streams": [stream(each) for each in (sys.stdin, sys.stdout, sys.stderr)],
    "originals": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "fds": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
    "signals": {each.name: str(signal.getsignal(each)) for each in signal.Signals},
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "umask": os.umask(0),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE), "threads": threading.active_count(),
    "leads": os.getsid(0) == os.getpid(), "ours": os.getsid(0) == int(os.environ["SESSION"]),
    "group": os.getpgrp() == int(os.environ["GROUP"]), "gc": [gc.isenabled(), gc.get_threshold()],
    "command": open("/proc/self/cmdline").read().rstrip("\\0"),
    "warns": [str(each[2]) for each in warnings.filters][-5:],
}))

def serve(sock):
    sys.exit(5)

if "exit" in sys.argv:
    sys.exit(7)
if "raise" in sys.argv:
    raise ValueError("broken")
if "wait" in sys.argv:
    sys.stdout.flush()
    sys.stdin.read()
"""


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "probe.py").write_text(PROBE)
    more = {
        "SESSION": str(os.getsid(0)),
        "GROUP": str(os.getpgrp()),
        "MINE": "ümläut \udcff",
        "TZ": "<+11>-11",
    }
    return {
        "cwd": tmp_path,
        "env": {**os.environ, **more},
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def fewer_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 7, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("own_session", [False, True])
@pytest.mark.parametrize("unbuffered", [False, True])
def test_it_is_as_after_a_true_start(options: dict[str, Any], own_session: bool, unbuffered: bool) -> None:
    options["start_new_session"] = own_session
    options["env"]["PYTHONUNBUFFERED"] = "1" if unbuffered else ""
    if own_session:
        options["env"]["PYTHONPATH"] = f"{options['cwd'] / 'first'}:{options['cwd'] / 'second'}"
    arguments = ["one", "two words", ""]
    with umask(0o027), fewer_files():
        forked = pallas_process.start(*arguments, module="probe", **options)
        true = subprocess.Popen([sys.executable, "-m", "probe", *arguments], **options)
    assert type(forked) is not type(true)
    found, wanted = (json.loads(each.communicate(timeout=LONG)[0]) for each in (forked, true))
    assert found["leads"] is own_session
    assert found == wanted


@pytest.mark.slow
async def test_the_process_of_an_isolated_agent_is_as_after_a_true_start(options: dict[str, Any]) -> None:
    env = {**options["env"], "PYTHONPATH": str(options["cwd"])}
    number = 200  # of the channel, which is in the command
    # Without `-X faulthandler`: the program switches it on by itself, a moment later.
    interpreter = (sys.executable, "-P", "-m", "pallas.executors.ipc.child")

    async def probe() -> dict[str, Any]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            os.dup2(theirs.fileno(), number)
            try:
                process, status = await child_process.start_below_keeper(
                    (*interpreter, "probe", str(number)),
                    channel=number,
                    cwd=options["cwd"],
                    stdin=asyncio.subprocess.DEVNULL,
                    env=env,
                )
            finally:
                os.close(number)
        async with asyncio.timeout(LONG):
            out, err = await process.communicate()
        with open(status) as stream:  # noqa: ASYNC230, PTH123 - a descriptor of what has ended
            assert stream.read() == "exit 5\n", err
        found: dict[str, Any] = json.loads(out)
        del found["flags"]  # -P holds by the path here
        return found

    true = await probe()
    with pallas_process.forked_children():
        assert await probe() == true


@pytest.mark.parametrize("words", [("--version",), ("no-such-command",)], ids=["works", "fails"])
async def test_a_command_that_a_fleet_runs_is_as_after_a_true_start(
    tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = leashed((sys.executable, "-P", "-m", "pallas.server", *words))

    async def ran() -> child_program.Ran:
        return await child_program.run(command, timeout=LONG, limit=2**16, cwd=tmp_path, complains=True)

    true = await ran()
    with pallas_process.forked_children():
        monkeypatch.delattr(subprocess.Popen, "_execute_child")  # what a true start needs
        assert await ran() == true
    assert (true.status == 0) is (words == ("--version",))


STARTER = """
import asyncio, json, os, socket, sys

from pallas.executors.ipc import child_process

async def main():
    ours, theirs = socket.socketpair()
    os.dup2(theirs.fileno(), 200)  # in the command
    command = (sys.executable, "-P", "-m", "pallas.executors.ipc.child", "probe", "200")
    process, status = await child_process.start_below_keeper(
        command, channel=200, cwd=os.getcwd(), stdin=asyncio.subprocess.DEVNULL
    )
    out, err = await process.communicate()
    print(json.dumps({
        "child": json.loads(out), "ended": open(status).read(), "code": process.returncode
    }))

asyncio.run(main())
"""


@pytest.mark.slow
def test_what_it_starts_is_as_after_a_true_start(options: dict[str, Any]) -> None:
    (options["cwd"] / "starter.py").write_text(STARTER)
    (options["cwd"] / "probe.py").write_text(
        PROBE.replace('"argv"', '"modules": len(sys.modules), "argv"', 1)
    )
    options["env"]["PYTHONPATH"] = str(options["cwd"])
    options["start_new_session"] = True

    def told(process: subprocess.Popen[Any]) -> dict[str, Any]:
        out, err = process.communicate(timeout=LONG)
        assert process.returncode == 0, err
        found: dict[str, Any] = json.loads(out)
        del found["child"]["flags"]  # -P holds by the path here
        return found

    forked = told(pallas_process.start(module="starter", forks=True, **options))
    true = told(subprocess.Popen([sys.executable, "-m", "starter"], **options))
    assert forked["child"].pop("modules") > 10 * true["child"].pop("modules")
    assert forked == true


@pytest.mark.parametrize(("ending", "status"), [("exit", 7), ("raise", 1), ("", 0)])
def test_it_ends_as_after_a_true_start(options: dict[str, Any], ending: str, status: int) -> None:
    with pallas_process.start(ending, module="probe", **options) as process:
        _, err = process.communicate(timeout=LONG)
    assert process.returncode == process.wait() == process.poll() == status
    assert (b"ValueError: broken" in err) is (ending == "raise")


def test_it_is_waited_for_and_hears_signals(options: dict[str, Any]) -> None:
    process = pallas_process.start("wait", module="probe", **options)
    assert process.stdout is not None
    assert process.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)  # subject: a wait that ends before the process
    assert process.poll() is None
    process.terminate()
    assert process.wait(LONG) == -signal.SIGTERM
    process.kill()  # it has ended: nothing is done
    process.communicate()


async def test_asyncio_knows_it_too(options: dict[str, Any]) -> None:
    options["env"]["PYTHONUNBUFFERED"] = "1"
    told = await pallas_process.start_async("--version", **options)
    assert (await told.communicate())[0].startswith(b"pallas ")
    assert told.returncode == 0
    ended = await pallas_process.start_async("bridge", **options)
    ended.kill()
    async with asyncio.timeout(LONG):
        assert await ended.wait() == -signal.SIGKILL
        await ended.communicate()


def test_what_is_read_once_is_read_by_a_true_start(options: dict[str, Any]) -> None:
    for name, value in {"HOME": "/elsewhere", "FASTMCP_X": "1", "PYTHONUTF8": "1", "LC_ALL": "C"}.items():
        more = {**options, "env": {**options["env"], name: value}}
        with pallas_process.start(module="probe", **more) as process:
            assert type(process) is subprocess.Popen, name
            assert json.loads(process.communicate(timeout=LONG)[0])["environ"][name] == value
    with pallas_process.start(module="probe", **options, preexec_fn=lambda: os.close(2)) as process:
        assert type(process) is subprocess.Popen
        process.communicate(timeout=LONG)


@pytest.mark.slow
@pytest.mark.timeout(480)
async def test_nothing_outlives_tests_that_are_killed(tmp_path: Path) -> None:
    (tmp_path / "starter.py").write_text(STARTER)
    (tmp_path / "probe.py").write_text(
        "import pathlib, time\ndef serve(sock):\n    pathlib.Path('begun').touch()\n    time.sleep(600)\n"
    )
    program = tmp_path / "tests.py"
    program.write_text(
        "import os, time\nfrom support import pallas_process\n"
        "env = {**os.environ, 'PYTHONPATH': os.getcwd()}\n"
        "pallas_process.start(module='starter', forks=True, env=env, start_new_session=True)\n"
        "time.sleep(600)\n"
    )
    tests = subprocess.Popen(  # noqa: ASYNC220 - returns at once
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; exec(open('tests.py').read())"],
        cwd=tmp_path,
    )
    below: list[psutil.Process] = []
    try:
        await until((tmp_path / "begun").exists, timeout=LONG)
        below = psutil.Process(tests.pid).children(recursive=True)
        told = [" ".join(each.cmdline()) for each in below]
        # The server, the starter, that one's server, the keeper, the program.
        assert [len(told), sum("fork_server.py" in each for each in told)] == [5, 2], told
        assert sum("ipc.child probe" in each for each in told) == 2, told
    finally:
        below = below or psutil.Process(tests.pid).children(recursive=True)
        tests.kill()
        tests.communicate()
        _, alive = psutil.wait_procs(below, timeout=LONG)
        for each in alive:
            each.kill()
    assert alive == []
