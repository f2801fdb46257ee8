"""One project served from two worker processes on the same ports, over one ledger."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from support.live import ERAS, agent_module
from support.offline import offline_project
from support.pinned import Pinned, one_to_each, result_in
from support.ports import free_ports
from support.processes import gone
from support.raw_client import INITIALIZE, handshake_headers, meta
from support.recording import recording
from support.served import Served, served
from support.turnstile import turnstile
from support.waiting import poll, until

from pallas.cli.app import run as typed

SCRIPT = """
rules:
  - when: {last: user, text: hold}
    call: [{tool: stile__go, arguments: {who: "{{ last }}"}}]
  - when: {last: user, text: pass, system: You are one}
    call: [{tool: two__send_message, arguments: {message: "{{ last }}"}}]
  - when: {last: user, text: note}
    call: [{tool: rec__note, arguments: {text: "{{ last }}"}}]
  - when: {last: tool}
    say: "{{ result }}"
  - when: {last: user}
    say: "{{ turns }} from {{ first }}"
"""


def project(root: Path, servers: Mapping[str, Any] | None = None, **top: object) -> Path:
    """Two agents on one port for everything, served from two processes."""
    (port,) = free_ports(1)
    two = {"url": f"http://127.0.0.1:{port}/agents/two/mcp", "auth": {"oauth": False}}
    servers = {"two": two, **(servers or {})}
    return offline_project(
        root,
        {"one": agent_module("one", tuple(servers)), "two": None},
        SCRIPT,
        keys={"one": {"port": None}, "two": {"port": None}},
        top={"bind": "127.0.0.1", "port": port, "workers": 2, **top},
        config={"mcp": {"servers": dict(servers)}},
    )


def port_of(fleet: Served) -> int:
    return int(fleet.entries["port"])


async def workers_of(fleet: Served) -> list[int]:
    """The pids of both workers, once both are ready."""
    line = await fleet.says(" workers: processes ")
    await fleet.says("] running", timeout=120)
    return [int(each) for each in line.partition("processes ")[2].split(", ")]


@asynccontextmanager
async def two_workers(
    tmp_path: Path, servers: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[Served, list[int], Pinned, Pinned]]:
    """A fleet, the pids of its workers and a connection to each of them."""
    with served(project(tmp_path / "p", servers)) as fleet:
        pids = await workers_of(fleet)
        async with one_to_each(port_of(fleet), pids) as (a, b):
            yield fleet, pids, a, b


@pytest.mark.slow
async def test_a_conversation_goes_on_in_any_process_and_a_session_too(tmp_path: Path) -> None:
    async with recording() as recorder:
        rec = {"rec": {"url": recorder.url, "forward_inbound_auth": True}}
        async with two_workers(tmp_path, rec) as (fleet, pids, a, b):
            for era in ERAS:
                await goes_on_turn_by_turn(a, b, era)
            await goes_on_in_a_session(a, b)
            await goes_on_in_a_session_of_the_bridge(a, b)
            await is_refused_where_it_is_not_ones_own(port_of(fleet), pids)
            await crosses_no_bearers(port_of(fleet), pids)
            heard = {each.text: each.bearer for each in recorder.calls()}
            assert heard == {f"note {number}": f"token-{number}" for number in range(50)}
            fleet.send(signal.SIGTERM)
            assert await fleet.ended() == 0, fleet.err
        assert fleet.err == []
        for text in ("] running", "one: ready", "registry http"):
            assert sum(text in line for line in fleet.out) == 1, fleet.out
        await until(lambda: all(map(gone, pids)))


async def goes_on_turn_by_turn(a: Pinned, b: Pinned, era: str) -> None:
    """Each turn in another process than the last one: each sees what was said in both."""
    handle = f"ours-{era}"
    for turn, worker in enumerate((a, b, b, a, b), 1):
        said = await worker.say("one", era, f"start {era}", conversation_id=handle)
        assert said == f"{turn} from start {era}"
    # Both at once: no turn is lost.
    await asyncio.gather(*(each.say("one", era, "more", conversation_id=handle) for each in (a, b)))
    assert await a.say("one", era, "end", conversation_id=handle) == f"8 from start {era}"


async def goes_on_in_a_session(a: Pinned, b: Pinned) -> None:
    """A session that one process opened is continued, and ended, in the other."""
    legacy = ERAS[1]
    b.session = await a.open_session("one")
    for turn, worker in enumerate((a, b, a, b), 1):
        assert await worker.say("one", legacy, "in a session") == f"{turn} from in a session"
    # It was first used elsewhere than it was opened.
    a.session = await b.open_session("one")
    assert await a.say("one", legacy, "first") == "1 from first"
    assert await b.say("one", legacy, "second") == "2 from first"
    sealed = a.session
    body, _, signature = sealed.partition(".")
    other = "B" if body[20] == "A" else "A"
    forged = (f"{body[:20]}{other}{body[21:]}.{signature}", f"{body}.{'A' * len(signature)}", body, "x", ".")
    for worker in (a, b):
        for id_ in forged:
            worker.session = id_
            answer = await worker.ask("one", legacy, "hi")
            assert (answer.status_code, "Session not found" in answer.text) == (404, True), answer.text
        worker.session = sealed
        assert (await worker.ask("two", legacy, "hi")).status_code == 404  # another agent's
    headers = {"mcp-session-id": sealed}
    assert (await b.http.delete("/agents/one/mcp", headers=headers)).status_code == 200
    for worker in (b, a):  # the other process hears of it at once, by way of the parent
        answers = [(await worker.ask("one", legacy, "hi")).status_code for _ in range(20)]
        assert answers[-1] == 404
        worker.session = ""


async def goes_on_in_a_session_of_the_bridge(a: Pinned, b: Pinned) -> None:
    """A session that one process opened is prompted, and closed, in the other."""
    made = await bridged(a, "sessions_create", agentId="two")
    session = {"sessionId": made["sessionId"]}
    for turn, worker in enumerate((b, a, b), 1):
        said = await bridged(worker, "sessions_prompt", prompt="in a session", **session)
        assert said["text"] == f"{turn} from in a session"
    await bridged(b, "sessions_close", **session)
    for worker in (a, b):
        assert "Session not found" in (await bridged(worker, "sessions_status", **session))["error"]


async def bridged(worker: Pinned, tool: str, **arguments: str) -> dict[str, Any]:
    """What a tool of the bridge answers."""
    headers = {"mcp-protocol-version": ERAS[0], "mcp-method": "tools/call", "mcp-name": tool}
    params = {"name": tool, "arguments": arguments, "_meta": meta(ERAS[0])}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await worker.http.post("/mcp", json=body, headers={**handshake_headers(), **headers})
    (block,) = result_in(answer)["content"]
    found: dict[str, Any] = json.loads(block["text"])
    return found


async def is_refused_where_it_is_not_ones_own(port: int, pids: list[int]) -> None:
    """Another caller cannot continue a session or a conversation, in whichever process."""
    async with one_to_each(port, pids, "mine") as mine, one_to_each(port, pids, "other") as others:
        session = await mine[0].open_session("one")
        assert await mine[0].say("one", ERAS[1], "secret") == "1 from secret"
        await mine[0].say("one", ERAS[0], "secret", conversation_id="guessed")
        for other in others:
            other.session = session
            answer = await other.ask("one", ERAS[1], "hi")
            assert (answer.status_code, "another identity" in answer.text) == (404, True), answer.text
            answer = await other.ask("one", ERAS[0], "hi", conversation_id="guessed")
            assert "conversation not found" in answer.text


async def crosses_no_bearers(port: int, pids: list[int]) -> None:
    """Fifty callers at once, each in both processes and with a bearer of its own for the downstream."""
    async with one_to_each(port, pids) as workers:

        async def caller(number: int) -> None:
            era = ERAS[number // 2 % 2]
            bearer = {"authorization": f"Bearer token-{number}"}
            here, there = workers[number % 2], workers[1 - number % 2]
            handle = {"conversation_id": f"of-{number}"}
            one, two = Pinned(port), Pinned(port)
            one.http, two.http = here.http, there.http
            if era == ERAS[1]:
                answer = await one.post("one", INITIALIZE, bearer)
                one.session = two.session = answer.headers["mcp-session-id"]
                handle = {}
            said = await one.say("one", era, f"I am {number}", headers=bearer, **handle)
            assert said == f"1 from I am {number}"
            text = f"note {number}"
            assert text in await two.say("one", era, text, headers=bearer, **handle)
            assert await one.say("one", era, "who", headers=bearer, **handle) == f"3 from I am {number}"

        async with asyncio.timeout(240):
            await asyncio.gather(*(caller(number) for number in range(50)))


async def are_listed_as_replicas(fleet: Served, pids: set[int], capsys: pytest.CaptureFixture[str]) -> None:
    """`pallas get replicas` has a line for each worker process."""

    async def listed() -> list[dict[str, Any]]:
        capsys.readouterr()
        words = ["--project", str(fleet.root), "get", "replicas", "-o", "json"]
        assert await asyncio.to_thread(typed, words) == 0
        items: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["items"]
        return items

    serving = sorted((pid, "serving") for pid in pids)
    found = await poll(listed, lambda all_: sorted((each["pid"], each["state"]) for each in all_) == serving)
    assert sum(each["isHere"] for each in found) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("top", "outcome", "status"),
    [
        ({}, "1 run finished in ", 0),
        ({"drain_timeout": 0.5}, "1 run cut short after ", 3),
        ({"drain_timeout": 0.5, "drain": "hand_over"}, "1 run handed over", 0),
    ],
)
async def test_each_process_says_once_what_became_of_its_runs(
    tmp_path: Path, top: dict[str, Any], outcome: str, status: int
) -> None:
    async with turnstile() as stile:
        root = project(tmp_path / "p", {"stile": {"url": stile.url}}, **top)
        with served(root) as fleet:
            pids = await workers_of(fleet)
            async with one_to_each(port_of(fleet), pids) as workers:
                calls = [
                    asyncio.create_task(each.ask("one", ERAS[0], f"hold {each.pid}", conversation_id="new"))
                    for each in workers
                ]
                await until(lambda: len(stile.arrived) == 2)
                async with Pinned(port_of(fleet)) as beside:
                    in_flight = await beside.http.get("/api/v1/runs", params={"status": "running"})
                runs = {each["id"] for each in in_flight.json()["items"]}
                fleet.send(signal.SIGTERM)
                for number in (1, 2):
                    await fleet.says(f"[test worker {number}] draining: 1 run in flight, ")
                if not top:
                    stile.open.set()
                await asyncio.wait(calls)
                assert await fleet.ended() == status
        told = [line for line in fleet.out if "run in flight" in line]
        assert {run for run in runs if any(run in line for line in told)} == runs
        for number in (1, 2):
            last = [line for line in fleet.out if f"[test worker {number}] draining: 1 run " in line][-1]
            assert f"draining: {outcome}" in last
        assert sum(outcome in line for line in fleet.out) == 2
        assert (fleet.out.count("[test] draining"), fleet.out[-1]) == (1, "[test] stopped")
        assert fleet.err == []


@pytest.mark.slow
async def test_a_killed_process_is_replaced_and_nothing_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with turnstile() as stile:
        stiles = {"stile": {"url": stile.url}}
        async with two_workers(tmp_path, stiles) as (fleet, pids, a, b):
            await are_listed_as_replicas(fleet, {*pids}, capsys)
            second = next(each for each in (a, b) if each.pid == pids[1])
            first = a if second is b else b
            for era in ERAS:
                first.session = second.session = ""
                await second.say("one", era, "start", conversation_id=f"kept-{era}")
            session = await second.open_session("one")
            assert await second.say("one", ERAS[1], "in a session") == "1 from in a session"
            psutil.Process(second.pid).kill()
            await fleet.says(f"worker 2 (process {second.pid}) was killed by SIGKILL; it is started again")
            # The other one goes on answering meanwhile, the dead one's conversations too.
            for era in ERAS:
                first.session = ""
                said = await first.say("one", era, "on", conversation_id=f"kept-{era}")
                assert said == "2 from start"
            first.session = session
            assert await first.say("one", ERAS[1], "on") == "2 from in a session"
            await fleet.says("is ready")
            psutil.Process(first.pid).kill()
            await fleet.says(f"worker 1 (process {first.pid}) was killed")
            # What exists once, here the offline model, exists again in a new first process.
            await until(lambda: sum("is ready" in line for line in fleet.out) == 2, timeout=120)
            async with one_to_each(port_of(fleet)) as (c, d), one_to_each(port_of(fleet)) as more:
                assert not {c.pid, d.pid} & {*pids}
                await are_listed_as_replicas(fleet, {c.pid, d.pid}, capsys)
                beside = next(each for each in more if each.pid == d.pid)
                await are_followed_and_cancelled_elsewhere(stile, c, d, beside)
                await are_counted_together(c, d)
                c.session = d.session = session
                assert await c.say("one", ERAS[1], "on") == "3 from in a session"
                assert await d.say("one", ERAS[1], "on") == "4 from in a session"
                await answers_calls_in_flight(fleet, stile, c, d)


async def are_followed_and_cancelled_elsewhere(stile: Any, c: Pinned, d: Pinned, beside: Pinned) -> None:
    """A run of one process is followed, and cancelled over REST or by a note of its client, in the other."""
    d.session = await c.open_session("one")
    for era in ERAS:
        handle = {"conversation_id": "held"} if era == ERAS[0] else {}
        call = asyncio.create_task(c.ask("one", era, f"hold {era}", **handle))
        await until(lambda: f"hold {era}" in stile.arrived)  # noqa: B023 - it is awaited here
        (run,) = (await d.http.get("/api/v1/runs", params={"status": "running"})).json()["items"]
        path = f"/api/v1/runs/{run['id']}/events"
        alone = await beside.http.get(path, headers={"pallas-passed-on": "1"})
        assert alone.status_code == 404  # this process does not have the run: it asks the other one
        events = asyncio.create_task(beside.http.get(path))
        if era == ERAS[0]:
            assert (await d.http.delete(f"/api/v1/runs/{run['id']}")).status_code == 202
        else:
            note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            assert (await d.post("one", note)).status_code == 202
        await call
        followed = await events
        assert '"cancelled":true' in followed.text, followed.text
        ended = await d.http.get(f"/api/v1/runs/{run['id']}")
        assert ended.json()["status"] == "cancelled", era
    c.session = d.session = ""


async def are_counted_together(c: Pinned, d: Pinned) -> None:
    """Any process answers with the metrics of all. Calls between agents of the fleet stay in one process."""
    for number in range(4):
        assert " from pass " in await c.say("one", ERAS[0], f"pass {number}")
    for worker in (c, d):
        text = (await worker.http.get("/metrics")).text
        assert text.count("# TYPE pallas_runs_in_flight gauge") == 1
        for number in (1, 2):
            assert f'pallas_runs_in_flight{{worker="{number}",agent="one"}} 0.0' in text
        of_two = [line for line in text.splitlines() if line.startswith("pallas_send_message_total{")]
        assert [line.split()[-1] for line in of_two if 'agent="two",outcome="ok"' in line] == ["4.0"], of_two


async def answers_calls_in_flight(fleet: Served, stile: Any, c: Pinned, d: Pinned) -> None:
    """A signal to the parent drains both processes: calls under way are answered before the end."""
    calls = [
        asyncio.create_task(each.say("one", ERAS[0], f"hold {name}")) for name, each in (("c", c), ("d", d))
    ]
    await until(lambda: {"hold c", "hold d"} <= {*stile.arrived})
    fleet.send(signal.SIGTERM)
    await fleet.logs("fleet test: draining")
    stile.open.set()
    assert await asyncio.gather(*calls) == ["hold c went through", "hold d went through"]
    assert await fleet.ended() == 0, fleet.err
    assert fleet.out[-1] == "[test] stopped"


@pytest.mark.slow
async def test_mistakes_are_reported_once(tmp_path: Path) -> None:
    root = project(tmp_path / "p", nonsense=1)
    with served(root) as fleet:
        assert await fleet.ended() == 2
        (line,) = [line for line in fleet.err if "nonsense" in line]
        assert "agents.yaml:" in line
    file = root / "agents.yaml"
    good = {key: value for key, value in yaml.safe_load(file.read_text()).items() if key != "nonsense"}
    # One that only the start finds: the model's script, in the first process.
    file.write_text(yaml.safe_dump(good))
    script = root / "model.yaml"
    written = script.read_text()
    script.write_text("rules: [{sya: hi}]\n")
    with served(root) as fleet:
        assert await fleet.ended(120) == 2
        assert sum("sya" in line for line in fleet.err) == 1, fleet.err
        assert len(fleet.err) == len({*fleet.err})
    script.write_text(written)
    for wrong, text in ((0, "workers"), ("many", "workers"), (65, "workers")):
        file.write_text(yaml.safe_dump({**good, "workers": wrong}))
        with served(root) as fleet:
            assert await fleet.ended() == 2
            (line,) = fleet.err
            assert line.startswith("agents.yaml:")
            assert text in line
    file.write_text(yaml.safe_dump({**good, "database_url": "memory"}))
    with served(root) as fleet:
        assert await fleet.ended() == 2
        (line,) = fleet.err
        assert line.startswith("agents.yaml:")
        assert "workers: 2 processes cannot share a database in memory" in line


@pytest.mark.slow
async def test_a_taken_port_is_reported_as_by_one_process(tmp_path: Path) -> None:
    root = project(tmp_path / "p")
    port = yaml.safe_load((root / "agents.yaml").read_text())["port"]
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port))
        holder.listen()
        with served(root) as fleet:
            assert await fleet.ended(120) == 2
        (line,) = fleet.err
        assert f"agents.yaml: port: port {port} is in use" in line
