"""Three replicas of deploy/project on one PostgreSQL behind HAProxy, updated one after the other under load.

The exit status is 1 when a message was lost, or a caller got an error after which it may not send again.
"""

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

import httpx2

from benchmarks.chaos.project import free_ports
from benchmarks.programs import process, until_http
from deploy.rehearse import DEPLOY

from . import verdict
from .callers import Account, CallerTask, HandshakeSurface, McpSurface, RestSurface, Surface
from .deployment import PORT, Balancer, Compose, Replica, database, haproxy

OWN: Final = 3
"""Callers of each surface with conversations of their own."""
SHARED: Final = 2
"""Conversations that callers of both MCP versions share, and as many that callers of REST share."""
ALONE: Final = 3
"""Callers without a conversation."""
UP_SECONDS: Final = 15.0
SETTLE_SECONDS: Final = 90.0
MAX_SHOWN: Final = 10


def main() -> int:
    """Rehearse it; the exit status."""
    options = argparse.ArgumentParser(prog="python -m deploy.rolling_update")
    options.add_argument("--seconds", type=float, default=5.0, help="of load before and after the update")
    options.add_argument("--pause", type=float, default=1.5, help="seconds between two messages, on average")
    options.add_argument("--keep", type=Path, help="where the logs are kept")
    given = options.parse_args()
    # What was started is ended, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="pallas-rehearsal-") as folder:
        try:
            return asyncio.run(_rehearse(Path(folder), given.seconds, given.pause))
        finally:
            if given.keep is not None:
                sockets = shutil.ignore_patterns("*.sock")
                shutil.copytree(folder, given.keep, dirs_exist_ok=True, ignore=sockets)


async def _rehearse(folder: Path, seconds: float, pause: float) -> int:
    began = monotonic()
    async with (
        _deployed(folder) as deployment,
        httpx2.AsyncClient(
            base_url=deployment.balancer.url,
            trust_env=False,
            timeout=None,  # callers have deadlines of their own
            limits=httpx2.Limits(max_connections=None),
        ) as http,
    ):
        _say(f"{len(deployment.replicas)} replicas are up after {monotonic() - began:.0f} s")
        account, over = Account(), asyncio.Event()
        callers = await _callers(http, deployment.token, account)
        asking = [asyncio.create_task(each.run(over, pause)) for each in callers]
        await asyncio.sleep(seconds)
        await _update(deployment)
        await asyncio.sleep(seconds)
        over.set()
        done, pending = await asyncio.wait(asking, timeout=SETTLE_SECONDS)
        for each in pending:
            each.cancel()
        for each in done:
            each.result()
        problems = [*account.violations, *["a caller hangs" for _ in pending]]
        problems += await deployment.problems()
        problems += await _in_threads(RestSurface(http, deployment.token), account)
        problems += verdict.of_tools(deployment.effects, account.sent)
        await _tell(account, deployment, len(callers))
    _say(f"took {monotonic() - began:.0f} s")
    for line in problems[:MAX_SHOWN]:
        print(f"PROBLEM {line}")
    if len(problems) > MAX_SHOWN:
        print(f"PROBLEM and {len(problems) - MAX_SHOWN} more")
    print("this must not be" if problems else "nothing was lost")
    return 1 if problems else 0


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is running. ``effects`` is the file of what tools did, ``token`` that of the REST API."""

    replicas: list[Replica]
    balancer: Balancer
    effects: Path
    token: str
    grace_seconds: float

    async def problems(self) -> list[str]:
        """What replicas and HAProxy did that they must not do."""
        found = [*verdict.of_replicas(self.replicas, 1), *verdict.of_balancer(self.balancer)]
        if not await self.balancer.until_all_up([each.name for each in self.replicas], UP_SECONDS):
            found.append(f"HAProxy does not find all replicas up: {await self.balancer.health()}")
        return found


@asynccontextmanager
async def _deployed(folder: Path) -> AsyncIterator[Deployment]:
    """Start everything; enter the block when HAProxy finds all replicas up."""
    program, compose, effects = haproxy(), Compose(), folder / "effects"
    port, database_port, tools_port, *ports = free_ports(3 + 2 * len(compose.names), random.Random())
    secrets = compose.write_secrets(folder / "secrets")
    environment = compose.environment(
        {
            "postgres:5432": f"127.0.0.1:{database_port}",
            f"localhost:{PORT}": f"localhost:{port}",
            "/run/secrets": str(folder / "secrets"),
        }
    )
    async with AsyncExitStack() as stack:
        server = await database(compose.database_user, compose.database, secrets["PGPASSWORD"], database_port)
        stack.callback(server.close)
        tools = ("-m", "benchmarks.chaos.tool_server", str(effects), str(tools_port))
        stack.enter_context(process(*tools, cwd=DEPLOY.parent))
        replicas = []
        for name, own, model in zip(compose.names, ports[::2], ports[1::2], strict=True):
            replica = Replica(name, folder / name, own, environment)
            stack.callback(replica.close)
            replica.write_project(model, tools_port)
            replicas.append(replica)
        balancer = Balancer(program, folder, port, replicas)
        stack.callback(balancer.close)
        await asyncio.to_thread(until_http, f"http://127.0.0.1:{tools_port}/mcp")
        await asyncio.gather(*(each.start() for each in replicas))
        if not await balancer.until_all_up(compose.names, UP_SECONDS):
            raise RuntimeError(f"HAProxy does not find all replicas up: {await balancer.health()}")
        yield Deployment(replicas, balancer, effects, secrets["PALLAS_CONTROL_TOKEN"], compose.grace_seconds)


async def _callers(http: httpx2.AsyncClient, token: str, account: Account) -> list[CallerTask]:
    """Callers of each surface: with conversations of their own, with shared ones, and without any."""

    def mcp() -> tuple[Surface, Surface]:
        return McpSurface(http), HandshakeSurface(http)

    def rest() -> tuple[Surface, Surface]:
        return RestSurface(http, token), RestSurface(http, token, reads_on=False)

    callers = [
        CallerTask(f"own{number}.{kind}", surface, account)
        for number in range(OWN)
        for kind, surface in enumerate((*mcp(), *rest()))
    ]
    for number in range(SHARED):
        # A caller with the token and one without have no conversation in common.
        for way, pair in enumerate((mcp(), rest())):
            thread = await pair[0].new_thread()
            callers += [
                CallerTask(f"shared{number}.{way}{kind}", surface, account, thread=thread)
                for kind, surface in enumerate(pair)
            ]
    for number in range(ALONE):
        callers.append(CallerTask(f"alone{number}", McpSurface(http), account, is_alone=True))
    return callers


async def _update(deployment: Deployment) -> None:
    """Stop each replica and start it again, as the commands of docs/deployment.md do."""
    for replica in deployment.replicas:
        await replica.stop(deployment.grace_seconds)
        await replica.start()
        _say(
            f"{replica.name} ended with {replica.statuses[-1]} after {replica.drain_seconds[-1]:.1f} s, "
            f"and was ready again {replica.ready_seconds[-1]:.1f} s later"
        )


async def _in_threads(rest: RestSurface, account: Account) -> list[str]:
    problems: list[str] = []
    for thread in sorted({each.thread for each in account.sent if each.thread}):
        sent = [each for each in account.sent if each.thread == thread]
        problems += verdict.in_thread(thread, sent, await rest.messages(thread))
    return problems


async def _tell(account: Account, deployment: Deployment, callers: int) -> None:
    answered = sum(each.over < float("inf") for each in account.sent)
    threads = {each.thread for each in account.sent} - {""}
    _say(
        f"{callers} callers sent {len(account.sent)} messages in {len(threads)} conversations, "
        f"{2 * SHARED} of them shared: {answered} were answered"
    )
    _say("sent again, or read on:")
    for name, times in account.retried.most_common():
        _say(f"{times:5} {name}")
    health = await deployment.balancer.health()
    for name, each in health.items():
        _say(f"HAProxy: {name} is {each.status} and gave {each.responses} responses 2xx")
    statuses = Counter(status for _, status in deployment.balancer.statuses())
    _say("HAProxy: " + ", ".join(f"HTTP {status} {times}" for status, times in sorted(statuses.items())))


def _say(text: str) -> None:
    print(f"[rehearsal] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
