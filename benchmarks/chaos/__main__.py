"""`make chaos`: kills, stops, restarts and updates under load; then the account.

Without arguments it does what the defaults say, in about a quarter of an hour. The exit status is 1 when an
invariant does not hold.
"""

import argparse
import asyncio
import json
import random
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Final

import httpx2

from ..programs import own_state, process, until_http
from ..report import Figure
from ..rest_stream import PER_ATTEMPT
from . import audit, project, streams
from .balancer import balancer
from .callers import Account, CallerTask, new_thread
from .cluster import Cluster, Loss
from .database import PostgresServer
from .evidence import collect
from .harm import Harm
from .replica import Replica
from .surfaces import Addresses, McpSurface, SessionSurface
from .verdict import Verdict, judge

SHARING: Final = 4
"""Callers of one shared conversation: one of each surface."""
SETTLE_SECONDS: Final = 120.0
MAX_SHOWN: Final = 10
_HERE: Final = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    """Run it; the exit status."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.chaos")
    options.add_argument("--kills", type=int, help="kill -9 of a replica (default: 200, SQLite: 100)")
    options.add_argument("--stops", type=int, help="SIGSTOP for 20 s (default: 20)")
    options.add_argument("--restarts", type=int, help="restarts of PostgreSQL (default: 5)")
    options.add_argument("--updates", type=int, help="rolling updates (default: 2)")
    options.add_argument(
        "--promote",
        type=int,
        default=0,
        help="kill -9 of the primary, whose standby is promoted; nothing else happens by default",
    )
    options.add_argument("--asynchronous", action="store_true", help="commits do not wait for the standby")
    options.add_argument(
        "--lag", type=float, default=0.5, help="seconds before its death in which a primary sends nothing"
    )
    options.add_argument("--callers", type=int, default=64)
    options.add_argument("--pause", type=float, default=4.0, help="seconds between two messages, on average")
    options.add_argument("--seconds", type=float, default=800.0, help="in which it happens, at least")
    options.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    options.add_argument("--isolation", choices=("none", "process"), default="none")
    options.add_argument("--sqlite", action="store_true", help="two processes on one SQLite file")
    options.add_argument("--keep", type=Path, help="where logs, effects and rows are kept")
    given = options.parse_args()
    for name, usual in _usual(given).items():
        if getattr(given, name) is None:
            setattr(given, name, usual)
    if given.sqlite and (given.restarts or given.promote):
        options.error("--restarts and --promote need PostgreSQL")
    print(
        f"chaos: {given.kills} kills, {given.stops} stops, {given.restarts} restarts of the database, "
        f"{given.promote} promotions, {given.updates} rolling updates, {given.callers} callers, "
        f"--seed {given.seed}",
        flush=True,
    )
    with own_state(), tempfile.TemporaryDirectory(prefix="pallas-chaos-") as folder:
        try:
            return asyncio.run(_chaos(Path(folder), given))
        finally:
            if given.keep is not None:
                shutil.copytree(folder, given.keep, dirs_exist_ok=True)


def _usual(given: argparse.Namespace) -> dict[str, int]:
    """How often each thing happens that the arguments do not name."""
    if given.promote:
        return dict.fromkeys(("kills", "stops", "restarts", "updates"), 0)
    if given.sqlite:
        return {"kills": 100, "stops": 0, "restarts": 0, "updates": 2}
    return {"kills": 200, "stops": 20, "restarts": 5, "updates": 2}


async def _chaos(folder: Path, given: argparse.Namespace) -> int:
    async with AsyncExitStack() as stack:
        database, urls = await _database(folder, given, stack)
        places = project.write(folder, urls, isolation=given.isolation)
        requests, connections = project.free_ports(2, random.Random())
        effects = folder / "effects"
        tools = [str(place.tools) for place in places]
        stack.enter_context(process("-m", "benchmarks.chaos.tool_server", str(effects), *tools, cwd=_HERE))
        for port in tools:
            await asyncio.to_thread(until_http, f"http://127.0.0.1:{port}/mcp")
        http = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False, timeout=5))
        rest = await stack.enter_async_context(
            httpx2.AsyncClient(
                base_url=f"http://127.0.0.1:{requests}/api/v1",
                trust_env=False,
                timeout=30,
                limits=httpx2.Limits(max_connections=None),
            )
        )
        replicas = [Replica(number, place, http) for number, place in enumerate(places)]
        for replica in replicas:
            stack.push_async_callback(replica.close)
        await replicas[0].start()
        await audit.install(urls[0])
        await asyncio.gather(*(each.start() for each in replicas[1:]))
        ports = [place.port for place in places]
        stack.enter_context(balancer(folder, requests, connections, ports))
        addresses = Addresses(f"http://127.0.0.1:{requests}", f"http://127.0.0.1:{connections}")
        await asyncio.to_thread(until_http, f"{addresses.requests}/readyz")
        account, over = Account(), asyncio.Event()
        callers = await _callers(given, addresses, rest, account, over)
        harm = _harm(given, replicas, database)
        stack.push_async_callback(harm.close)
        await _under_load(callers, harm, over)
        await _settled(urls[0])
        seen = [each for caller in callers for each in caller.streams]
        evidence = await collect(urls[0], effects, replicas, seen, await streams.replayed(rest, seen))
        loss = database.loss if isinstance(database, Cluster) else None
        verdict = judge(evidence, account.sent, replicas, loss if given.asynchronous else None)
        _sessions(verdict, callers, loss if given.asynchronous else None)
        _late(evidence.run_of, account)
        status = _tell(verdict, account, callers, replicas, len(evidence.runs))
        if loss is not None:
            print(f"changes that each dead primary had and its standby had not: {loss.rows}")
        if given.keep is not None:
            await _keep(folder, urls[0], account, harm)
    return status


async def _database(
    folder: Path, given: argparse.Namespace, stack: AsyncExitStack
) -> tuple[PostgresServer | Cluster | None, list[str]]:
    """What is running, and the URL of each replica."""
    if given.sqlite:
        return None, [f"sqlite:///{folder}/ledger.sqlite3"] * 2
    database: PostgresServer | Cluster
    if given.promote:
        ports = project.free_ports(2, random.Random())
        database = Cluster(ports, is_synchronous=not given.asynchronous, lag=given.lag)
        stack.push_async_callback(database.close)
        await database.begin()
        server = database.primary
    else:
        database = server = PostgresServer()
        stack.callback(server.close)
    # Each replica has a user of its own, so that the triggers know who writes.
    for number in range(3):
        await audit.rows(server.url(), f"CREATE ROLE replica{number} SUPERUSER LOGIN")
    return database, [database.url(f"replica{number}") for number in range(3)]


def _harm(
    given: argparse.Namespace, replicas: list[Replica], database: PostgresServer | Cluster | None
) -> Harm:
    return Harm(
        replicas,
        database,
        given.seed,
        kills=given.kills,
        stops=given.stops,
        restarts=given.restarts,
        updates=given.updates,
        promotions=given.promote,
        seconds=given.seconds,
    )


async def _under_load(callers: list[CallerTask], harm: Harm, over: asyncio.Event) -> None:
    """Do the harm while callers ask, and let them end."""
    asking = [asyncio.create_task(each.run()) for each in callers]
    began = monotonic()
    try:
        await harm.run()
        print(f"harm done in {monotonic() - began:.0f} s: {dict(Counter(kind for _, kind, _ in harm.done))}")
        over.set()
        await asyncio.wait(asking, timeout=SETTLE_SECONDS)
    finally:
        for each in asking:
            each.cancel()
        ends = await asyncio.gather(*asking, return_exceptions=True)
    for error in ends:
        if isinstance(error, Exception):
            raise error


async def _callers(
    given: argparse.Namespace,
    addresses: Addresses,
    rest: httpx2.AsyncClient,
    account: Account,
    over: asyncio.Event,
) -> list[CallerTask]:
    """A quarter of the callers share conversations, each with callers of the other surfaces."""
    first_shared = given.callers - given.callers // 4
    first_shared -= first_shared % SHARING
    callers, thread = [], ""
    for number in range(given.callers):
        if number >= first_shared and (number - first_shared) % SHARING == 0:
            thread = await new_thread(rest)
        callers.append(
            CallerTask(
                number, addresses, rest, account, over, pause=given.pause, seed=given.seed, thread=thread
            )
        )
    return callers


async def _settled(url: str) -> None:
    """Wait until no run is left; what is left after a while is a problem."""
    deadline = monotonic() + SETTLE_SECONDS
    while monotonic() < deadline:
        running = await audit.rows(url, "SELECT id FROM runs WHERE status = 'running'")
        if not running and not await audit.rows(url, "SELECT run_id FROM waiting"):
            break
        await asyncio.sleep(0.5)
    await asyncio.sleep(1)


def _late(run_of: dict[str, str], account: Account) -> None:
    """Tell messages that came into their thread after their caller had given them up."""
    for number, sent in enumerate(account.sent):
        if sent.outcome == "absent" and sent.token in run_of:
            account.sent[number] = replace(sent, outcome="given up by its caller, and answered later")


def _sessions(verdict: Verdict, callers: list[CallerTask], loss: Loss | None) -> None:
    """Sessions of the bridge that were open, and that a replica did not know."""
    name = "bridge sessions that were lost"
    for surface in (each.surface for each in callers):
        if isinstance(surface, SessionSurface):
            for session in surface.lost:
                is_lost = loss is not None and session in loss.sessions
                (verdict.lost if is_lost else verdict.problems)[name].append(session)
    verdict.figures.append(Figure(name, len(verdict.problems[name]), 0, ""))


def _tell(
    verdict: Verdict,
    account: Account,
    callers: list[CallerTask],
    replicas: list[Replica],
    runs: int,
) -> int:
    for figure in verdict.figures:
        print(figure.row())
    print("calls in flight at a kill, by rule and what was done:")
    for name, count in sorted(verdict.in_flight.items()):
        print(f"  {count:5} {name}")
    _tell_account(account, callers, runs)
    problems = {name: found for name, found in verdict.problems.items() if found}
    if hung := [each.hung for each in callers if each.hung]:
        problems["callers that hung"] = hung
    if ended := [f"replica{each.number} {what}" for each in replicas for what in each.unexpected]:
        problems["replicas that did what they should not"] = ended
    for word, by_name in (("lost with the primary:", verdict.lost), ("PROBLEM", problems)):
        for name, found in by_name.items():
            for line in found[:MAX_SHOWN]:
                print(f"{word} {name}: {line}")
            if len(found) > MAX_SHOWN:
                print(f"{word} {name}: and {len(found) - MAX_SHOWN} more")
    if verdict.lost:
        counts = ", ".join(f"{name}: {len(found)}" for name, found in verdict.lost.items())
        print(f"in all lost with the primary, as its setting permits: {counts}")
    if not problems:
        print(
            "nothing was lost but what the primary lost" if any(verdict.lost.values()) else "nothing was lost"
        )
    return 1 if problems else 0


def _tell_account(account: Account, callers: list[CallerTask], runs: int) -> None:
    outcomes = Counter(each.outcome.partition(":")[0] for each in account.sent)
    print(f"messages {len(account.sent)}, runs {runs}:")
    for name, count in outcomes.most_common():
        print(f"  {count:5} {name}")
    print("errors that callers saw:")
    for name, count in account.errors.most_common():
        print(f"  {count:5} {name}  {account.examples[name][:150]}")
    surfaces = [each.surface for each in callers]
    sessions = sum(each.sessions_lost for each in surfaces if isinstance(each, McpSurface))
    print(f"  {sessions:5} handshake: sessions that another replica did not know, and that were opened again")
    prompts = sum(each.prompts for each in surfaces if isinstance(each, SessionSurface))
    print(f"prompts in sessions of the bridge: {prompts}")
    seen = [each for caller in callers for each in caller.streams]
    chunks = sum(len(each.chunks) for each in seen)
    print(
        f"streams {len(seen)} with {chunks} chunks: {sum(bool(each.resumed) for each in seen)} were read on, "
        f"{sum(each.resumed for each in seen)} times; "
        f"{sum(each.last > PER_ATTEMPT for each in seen)} over more than one attempt"
    )


async def _keep(folder: Path, url: str, account: Account, harm: Harm) -> None:
    """Write what was seen beside the logs."""
    tables = {
        name: await audit.rows(url, f"SELECT * FROM {name}")
        for name in ("runs", "messages", "threads", "waiting", audit.audit_table(url))
    }
    seen = {
        "sent": [[each.token, each.thread, each.at, each.over, each.outcome] for each in account.sent],
        "harm": harm.done,
        "restarts": harm.restarts,
    }
    (folder / "seen.json").write_text(json.dumps({**seen, **tables}, default=str))


if __name__ == "__main__":
    sys.exit(main())
