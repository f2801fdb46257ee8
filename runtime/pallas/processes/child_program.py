"""A program that is run to its end, with a deadline and a bound, away from the terminal."""

import asyncio
import os
import secrets
import signal
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CHUNK: Final = 64 * 1024
_REAP: Final = 1.0
_COMPLAINT: Final = 16 * 1024
"""Bytes of what a program complains of that are read."""
_OUTLIVES: Final = "PALLAS_OUTLIVES"
_MARK: Final = secrets.token_hex(8)


def outliving() -> dict[str, str]:
    """Return the environment of a program that may run on after this process; it is inherited.

    One that holds the clipboard does.
    """
    return {**os.environ, _OUTLIVES: _MARK}


def outlives(pid: int) -> bool:
    """Return whether a process was started in the environment ``outliving``. On Linux; False elsewhere."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{_OUTLIVES}={_MARK}".encode() in variables


@dataclass(frozen=True, slots=True)
class Ran:
    """How it went. ``output`` is what it printed, ``problem`` why it did not work, empty when it did.

    ``complaint`` is the beginning of what it printed on its standard error, if that was asked for. ``status``
    is None for a program that did not end by itself.
    """

    output: bytes = b""
    problem: str = ""
    complaint: bytes = b""
    status: int | None = None


async def run(
    command: Sequence[str],
    data: bytes = b"",
    *,
    timeout: float,
    limit: int = 0,
    cwd: Path | None = None,
    complains: bool = False,
    env: Mapping[str, str] | None = None,
) -> Ran:
    """Run ``command`` with ``data`` on its standard input for at most ``timeout`` seconds.

    At most ``limit`` bytes of what it prints are read; one that prints more has failed. With ``complains``
    the beginning of its standard error is read too. ``env`` replaces our environment. Never raises for a
    program that fails. The program is in a session of its own, so it cannot reach the terminal, and is ended
    with all it started when the time is up or the caller is cancelled.
    """
    name = os.path.basename(command[0])  # noqa: PTH119 - a name, not a path
    process: Process | None = None
    transport: asyncio.SubprocessTransport | None = None
    status: int | None = None
    try:
        async with asyncio.timeout(timeout):
            loop = asyncio.get_running_loop()
            starting = asyncio.ensure_future(
                loop.subprocess_exec(
                    lambda: SubprocessStreamProtocol(limit=2 * _CHUNK, loop=loop),
                    *command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE if limit else asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE if complains else asyncio.subprocess.DEVNULL,
                    cwd=cwd,
                    env=env,
                    start_new_session=True,
                )
            )
            try:
                await asyncio.shield(starting)
            finally:
                # If the caller goes away now, the program may run already: it is ended below.
                await asyncio.wait({starting}, timeout=_REAP)
                if starting.done() and starting.exception() is None:
                    transport, protocol = starting.result()
                    process = Process(transport, protocol, loop)
            assert process is not None
            output, complaint, _ = await asyncio.gather(
                _read(process.stdout, limit), _beginning(process.stderr), _write(process, data)
            )
            if len(output) > limit:
                return Ran(problem=f"{name} gave more than {limit:,} bytes")
            status = await process.wait()
    except TimeoutError:
        return Ran(problem=f"{name} did not answer within {timeout:g} s")
    except (OSError, ValueError) as error:
        return Ran(problem=f"{name} cannot be run: {getattr(error, 'strerror', None) or error}")
    finally:
        if process is not None and transport is not None:
            if status is None:
                await _kill(process)
            # A pipe that was not read to its end stays open otherwise.
            transport.close()
    return Ran(output, f"{name} failed with status {status}" if status else "", complaint, status)


async def _write(process: Process, data: bytes) -> None:
    assert process.stdin is not None
    # A program that does not read to the end has failed; its status says so. uvloop raises RuntimeError if it
    # has ended already.
    with suppress(ConnectionError, RuntimeError):
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _read(stream: asyncio.StreamReader | None, limit: int) -> bytes:
    output = bytearray()
    while stream is not None and len(output) <= limit and (more := await stream.read(_CHUNK)):
        output += more
    return bytes(output)


async def _beginning(stream: asyncio.StreamReader | None) -> bytes:
    """Read to the end, so that the program never waits, and keep the beginning."""
    output = await _read(stream, _COMPLAINT)
    while stream is not None and await stream.read(_CHUNK):
        pass
    return output[:_COMPLAINT]


async def _kill(process: Process) -> None:
    # Also after the program itself has ended: one that it started may hold the pipe.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _REAP)
