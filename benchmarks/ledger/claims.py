"""What take-overs cost while nothing fails: the fence in the writes of a turn, and the beats of a replica."""

import asyncio
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import process_time
from typing import Any
from unittest import mock
from urllib.parse import unquote

import psutil
from sqlalchemy import Connection

from pallas.ledger import Ledger, open_ledger, turn_statements
from pallas.ledger.hot_statement import HotStatement

from ..report import Figure
from . import turns

ROUNDS = 120
"""Conversations of each side; one follows the other."""
IDLE_SECONDS = 20.0
REPLICAS = 3
_FENCE = frozenset({"run", "of_attempt", "of_claim"})


class _Unfenced(HotStatement):
    """Reserves indexes of a thread for whichever run asks."""

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return super().rows(connection, {name: value for name, value in values.items() if name not in _FENCE})


_UNFENCED = _Unfenced(turn_statements._taking(run_id="")._statement)


@contextmanager
def _without_fence() -> Iterator[None]:
    with mock.patch.object(turn_statements, "_TAKE_LAST", _UNFENCED):
        yield


async def fence(name: str, ledger: Ledger) -> Figure:
    """Processor time of this process for a turn with the fence, against one whose last write has none."""
    kernel = turns.kernel_with(ledger)
    fenced: list[float] = []
    unfenced: list[float] = []
    await turns.conversation(kernel, turns.LENGTH)
    with _without_fence():
        await turns.conversation(kernel, turns.LENGTH)
    for _ in range(ROUNDS):
        began = process_time()
        await turns.conversation(kernel, turns.LENGTH)
        fenced.append(process_time() - began)
        with _without_fence():
            began = process_time()
            await turns.conversation(kernel, turns.LENGTH)
            unfenced.append(process_time() - began)
    await kernel.close()
    await kernel.close_records()
    ratio = statistics.median(fenced) / statistics.median(unfenced)
    each = statistics.median(fenced) / turns.LENGTH * 1e3
    return Figure(f"{name}: a turn with the fence against none", ratio, 1.02, detail=f"{each:.2f} ms")


async def beats(name: str, url: str) -> Figure:
    """The share of a core that a replica without work takes, and of the database's server for it."""
    ledgers = [await open_ledger(url) for _ in range(REPLICAS)]
    try:
        await asyncio.sleep(2)
        began, at_server = process_time(), _server_seconds(url)
        await asyncio.sleep(IDLE_SECONDS)
        own = (process_time() - began) / IDLE_SECONDS / REPLICAS * 100
        theirs = (_server_seconds(url) - at_server) / IDLE_SECONDS / REPLICAS * 100
    finally:
        for ledger in ledgers:
            await ledger.close()
    detail = f"of {REPLICAS}" + (f"; {theirs:.2f} % at the server" if theirs else "")
    return Figure(f"{name}: a core for the beats of a replica", own, 1.0, "%", detail)


def _server_seconds(url: str) -> float:
    """Processor time so far of the PostgreSQL server of that URL; 0 for SQLite."""
    _, _, folder = url.partition("host=")
    if not folder:
        return 0.0
    pid = int((Path(unquote(folder)) / "data" / "postmaster.pid").read_text().split()[0])
    postmaster = psutil.Process(pid)
    ended = postmaster.cpu_times()
    alive = [process.cpu_times() for process in (postmaster, *postmaster.children(recursive=True))]
    return ended.children_user + ended.children_system + sum(each.user + each.system for each in alive)
