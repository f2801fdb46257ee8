"""A new version of a fleet takes over from the old one behind a balancer, as in a cluster: no run fails."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from mcp import Client, MCPError
from support.live import ERAS
from support.offline import offline_project
from support.served import Served, served, text_of
from support.waiting import until

from pallas.config import load_project

WORKERS = 6


class Balancer:
    """Sends each caller's connections to one fleet on its list, as a service with affinity does.

    A caller is known by the port that it comes in at; it never looks into a connection.
    """

    def __init__(self) -> None:
        self.endpoints: list[int] = []
        self.open: Counter[int] = Counter()
        self._chosen: dict[int, int] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller: int = writer.get_extra_info("sockname")[1]
        if self._chosen.get(caller) not in self.endpoints:
            self._chosen[caller] = self.endpoints[len(self._chosen) % len(self.endpoints)]
        port = self._chosen[caller]
        self.open[port] += 1
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))
        finally:
            self.open[port] -= 1


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def balanced() -> AsyncIterator[tuple[Balancer, list[str]]]:
    balancer = Balancer()
    servers = [await asyncio.start_server(balancer.serve, "127.0.0.1", 0) for _ in range(WORKERS)]
    try:
        yield balancer, [f"http://127.0.0.1:{each.sockets[0].getsockname()[1]}/mcp" for each in servers]
    finally:
        for server in servers:
            server.close()


def version(folder: Path, name: str) -> Path:
    script = f"delay: 0.05\nrules:\n  - say: this is {name}\n"
    return offline_project(folder / name, {"desk": None}, script, top={"bind": "127.0.0.1"})


@pytest.mark.slow
async def test_no_run_fails_while_one_version_follows_another(tmp_path: Path) -> None:
    answers: list[str] = []
    begun_anew: list[int] = []
    over = asyncio.Event()
    old, new = version(tmp_path, "old"), version(tmp_path, "new")
    async with balanced() as (balancer, urls):

        async def ask(number: int) -> None:
            async with Client(urls[number], mode=ERAS[number % 2]) as client:
                result = await client.call_tool("send_message", {"message": "who is it"})
                assert not result.is_error, result
                answers.append(text_of(result))

        async def keep_asking(number: int) -> None:
            while not over.is_set():
                try:
                    await ask(number)
                except* MCPError as errors:
                    # A session of the handshake era lives in one fleet: whoever is told that it is gone
                    # begins another, as the protocol has it. Nothing of it was begun there.
                    assert [str(error) for error in _leaves(errors)] == ["Session not found"]
                    begun_anew.append(number)

        with served(old) as before, served(new) as after:
            await _ready(before)
            balancer.endpoints = [_port(old)]
            async with asyncio.TaskGroup() as group:
                for number in range(WORKERS):
                    group.create_task(keep_asking(number))
                await until(lambda: len(answers) >= WORKERS)
                assert set(answers) == {"this is old"}
                # The new one takes calls, the old one is taken off the list, and only then asked to go.
                await _ready(after)
                balancer.endpoints = [_port(new)]
                await until(lambda: not balancer.open[_port(old)])  # what a cluster waits for in preStop
                before.send(signal.SIGTERM)
                assert await before.ended() == 0
                seen = len(answers)
                await until(lambda: len(answers) >= seen + 2 * WORKERS)
                over.set()
            assert set(answers[-WORKERS:]) == {"this is new"}
            assert before.out[-1].endswith("] stopped")
            # Once at most for each caller of that era, when its fleet went.
            assert len(begun_anew) == len(set(begun_anew))
            assert {ERAS[number % 2] for number in begun_anew} <= {"legacy"}


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]


def _port(root: Path) -> int:
    return load_project(root).agents["desk"].port


async def _ready(fleet: Served) -> None:
    await fleet.says("] running")
    assert (await fleet.get("/readyz")).status_code == 200
