"""Fleets elsewhere, from registering to detaching: real registries, real agents, both eras."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from support.echo_agent import EchoAgent
from support.live import running, write_project
from support.registries import FakeRegistry, HandClock, entry
from support.waiting import until

from pallas.model import Fault, FaultType, HealthStatus
from pallas.surfaces.metrics import ClientHealth
from pallas_tui.instances import Instances, RegisteredInstance, agent_poller
from pallas_tui.instances.agent_poller import PollPace
from pallas_tui.instances.instance_store import InstanceStore
from pallas_tui.mcp_link import Era, McpLink

MODERN_FIRST: tuple[Era, ...] = ("auto", "legacy")


class Links:
    """Makes real connections and remembers them."""

    def __init__(self, era: Era = "auto") -> None:
        self.era: Era = era
        self.made: list[McpLink] = []

    def __call__(self, url: str) -> McpLink:
        self.made.append(McpLink(url, era=self.era, connect_timeout=60, read_timeout=60))
        return self.made[-1]

    @property
    def open(self) -> list[str]:
        """The URLs that are connected now."""
        return sorted(link.url for link in self.made if link.is_open)


class Setup:
    """Instances with a gauge, a clock and connections that a test can look at."""

    def __init__(self, era: Era = "auto", store: InstanceStore | None = None) -> None:
        self.links, self.clock, self.metrics = Links(era), HandClock(), CollectorRegistry()
        self.book = Instances(
            store=store,
            pace=PollPace(clock=self.clock, wait=self.clock.wait),
            connect=self.links,
            gauge=lambda: ClientHealth(self.metrics),
        )

    def statuses(self, url: str) -> dict[str, str]:
        instance = self.book.instance(url)
        assert instance is not None
        return {one.listed.id: one.health.status.value if one.health else "" for one in instance.agents}

    def gauge(self) -> dict[tuple[str, str], float]:
        return {
            (sample.labels["instance"], sample.labels["agent"]): sample.value
            for family in self.metrics.collect()
            for sample in family.samples
        }

    async def polled(self, instance: RegisteredInstance) -> dict[str, str]:
        await until(lambda: all(self.statuses(instance.url).values()))
        # What is told comes a moment before the wait for the next poll, which has to be there to be ended.
        await until(lambda: self.clock.waiting >= len(self.book.agents()))
        return self.statuses(instance.url)


@asynccontextmanager
async def setup(era: Era = "auto", store: InstanceStore | None = None) -> AsyncIterator[Setup]:
    here = Setup(era, store)
    try:
        yield here
    finally:
        await here.book.close()


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_fleet_is_listed_before_attaching_and_attached_with_a_connection_an_agent(
    tmp_path: Path, era: Era
) -> None:
    # PI-14, PI-16
    keys = {"alpha": {"title": "The first", "description": "Does this"}, "beta": {}}
    icons = {"top": {"namespace": "org.example"}}
    root = write_project(tmp_path, {"alpha": None, "beta": "raise SystemExit(3)"}, keys=keys, **icons)
    async with running(root) as fleet, setup(era) as here:
        instance = await here.book.register(fleet.snapshot().registry_url)
        alpha, beta = instance.agents
        assert (alpha.listed.id, alpha.listed.title, alpha.listed.description) == (
            "alpha", "The first", "Does this",
        )  # fmt: skip
        assert alpha.listed.name == "org.example/alpha"
        assert not instance.attached
        assert not alpha.attached
        assert not here.links.made
        assert here.book.agents() == ()

        await here.book.attach(instance.url)
        # One that could not be imported is attached as well, and shows its error.
        assert await here.polled(instance) == {"alpha": "ok", "beta": "error"}
        assert here.links.open == sorted([alpha.listed.url, beta.listed.url])
        assert here.gauge() == {(instance.label, "alpha"): 1.0, (instance.label, "beta"): 0.0}
        attached = {agent.name: agent for agent in here.book.agents()}
        assert attached[f"alpha@{instance.label}"].url == alpha.listed.url
        assert attached[f"beta@{instance.label}"].health.message

        # The same connections serve the polls that follow.
        here.clock.turn(60)
        await until(lambda: all(agent.health.checked_at == here.clock.now for agent in here.book.agents()))
        assert len(here.links.made) == 2

        await here.book.detach(instance.url)
        assert here.links.open == []
        assert here.gauge() == {}
        assert here.book.agents() == ()
        seen = here.book.instance(instance.url)
        assert seen is not None
        assert [agent.listed.id for agent in seen.agents] == ["alpha", "beta"]


@asynccontextmanager
async def served(*agents: EchoAgent) -> AsyncIterator[tuple[str, FakeRegistry]]:
    registry = FakeRegistry([entry(f"ns/{agent.name}", agent.url) for agent in agents])
    async with registry.serving() as origin:
        yield origin, registry


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_each_status_has_its_gauge_value_and_polls_share_one_session(era: Era) -> None:
    # PI-15, PI-16
    async with EchoAgent("one") as agent, served(agent) as (origin, _), setup(era) as here:
        instance = await here.book.register(origin)
        await here.book.attach(instance.url)
        await here.polled(instance)
        labels = (instance.label, "one")
        for polls, (status, value) in enumerate(
            {"degraded": 0.5, "error": 0.0, "ok": 1.0, "nonsense": 0.0}.items(), 2
        ):
            agent.health = {"status": status, "message": f"it is {status}"}
            await until(lambda: here.clock.waiting)
            here.clock.turn(60)
            await until(lambda polls=polls: agent.polls == polls and here.clock.waiting)
            assert here.gauge() == {labels: value}
        health = here.book.health(instance.url, "one")
        assert health is not None
        assert health.status is HealthStatus.ERROR
        assert agent.rpc.count("tools/call") == 5
        assert agent.rpc.count("initialize") == (1 if era == "legacy" else 0)


async def test_agents_that_know_one_era_only_are_attached_in_that_era() -> None:
    # PI-14
    async with (
        EchoAgent("old", only="handshake") as old,
        EchoAgent("new", only="modern") as new,
        served(old, new) as (origin, _),
        setup() as here,
    ):
        instance = await here.book.register(origin)
        await here.book.attach(instance.url)
        assert await here.polled(instance) == {"old": "ok", "new": "ok"}
        await until(lambda: here.clock.waiting == 2)
        here.clock.turn(60)
        await until(lambda: old.polls == new.polls == 2)
        assert old.rpc.count("initialize") == 1
        assert "initialize" not in new.rpc
        assert len(here.links.made) == 2


async def test_an_agent_that_wants_a_credential_is_an_error_with_that_reason() -> None:
    # PI-15
    async with EchoAgent("one") as agent, served(agent) as (origin, _), setup() as here:
        agent.wants_key = True
        instance = await here.book.register(origin)
        await here.book.attach(instance.url)
        assert await here.polled(instance) == {"one": "error"}
        health = here.book.health(instance.url, "one")
        assert health is not None
        assert "401" in health.message, health.message


async def test_detaching_touches_nothing_of_another_instance() -> None:
    # PI-14
    async with (
        EchoAgent("one") as one,
        EchoAgent("two") as two,
        served(one) as (first, _),
        served(one, two) as (second, _),
        setup() as here,
    ):
        kept, gone = await here.book.register(first), await here.book.register(second)
        await here.book.attach(kept.url)
        await here.book.attach(gone.url)
        await here.polled(kept)
        await here.polled(gone)
        assert len(here.links.open) == 3
        before = here.book.health(kept.url, "one")

        await here.book.detach(gone.url)
        assert here.links.open == [one.url]
        assert here.gauge() == {(kept.label, "one"): 1.0}
        assert here.book.health(kept.url, "one") is before
        assert here.book.health(gone.url, "one") is None
        assert [agent.name for agent in here.book.agents()] == [f"one@{kept.label}"]

        await here.book.remove(gone.url)
        assert [each.url for each in here.book.all()] == [kept.url]
        polls = one.polls
        await until(lambda: here.clock.waiting)
        here.clock.turn(60)
        await until(lambda: one.polls == polls + 1)


async def test_attaching_reads_the_registry_again_and_so_does_refreshing() -> None:
    # PI-14
    async with (
        EchoAgent("one") as one,
        EchoAgent("two") as two,
        EchoAgent("three") as three,
        served(one) as (origin, registry),
        setup() as here,
    ):
        instance = await here.book.register(origin)
        registry.entries.append(entry("ns/two", two.url))
        await here.book.attach(instance.url)
        assert await here.polled(instance) == {"one": "ok", "two": "ok"}
        since = here.book.agents()[0].since

        here.clock.now += 1
        registry.entries[1:] = [entry("ns/three", three.url, title="Third")]
        await here.book.refresh(instance.url)
        assert await here.polled(instance) == {"one": "ok", "three": "ok"}
        assert here.links.open == sorted([one.url, three.url])
        assert set(here.gauge()) == {(instance.label, "one"), (instance.label, "three")}
        assert here.book.agents()[0].since == since
        await until(lambda: one.polls == 2)

        # The registry went away: what is attached stays, and the reason is told.
        registry.answers["/.well-known/mcp/server.json"] = _teapot()
        with pytest.raises(Fault, match="HTTP 418"):
            await here.book.refresh(instance.url)
        seen = here.book.instance(instance.url)
        assert seen is not None
        assert "HTTP 418" in seen.problem
        assert len(here.book.agents()) == 2


def _teapot() -> Any:
    from starlette.responses import Response

    return Response("no", 418)


async def test_an_agent_that_never_answers_is_an_error_and_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # PI-15, PI-17
    limits: dict[str, asyncio.Timeout] = {}

    def limit(seconds: float) -> asyncio.Timeout:
        """A limit that passes when the test says so."""
        task = asyncio.current_task()
        assert task is not None
        limits[task.get_name()] = asyncio.timeout(None)
        return limits[task.get_name()]

    monkeypatch.setattr(agent_poller, "asyncio", SimpleNamespace(**{**vars(asyncio), "timeout": limit}))
    async with EchoAgent("slow") as slow, EchoAgent("quick") as quick, served(slow, quick) as (origin, _):
        slow.healthy.clear()
        clock = HandClock()
        book = Instances(pace=PollPace(clock=clock, wait=clock.wait))
        try:
            instance = await book.register(origin)
            await book.attach(instance.url)
            health = await until(lambda: book.health(instance.url, "quick"))
            assert health.status is HealthStatus.OK
            await until(lambda: slow.polls == 1)
            assert book.health(instance.url, "slow") is None
            limits[f"health of {slow.url}"].reschedule(asyncio.get_running_loop().time())
            health = await until(lambda: book.health(instance.url, "slow"))
            assert health.status is HealthStatus.ERROR
            assert "not answered within 10 s" in health.message
            slow.healthy.set()
            await until(lambda: clock.waiting == 2)
            clock.turn(60)
            await until(lambda: book.health(instance.url, "slow").status is HealthStatus.OK)  # type: ignore[union-attr]
        finally:
            await book.close()


async def test_an_agent_that_went_away_is_an_error_until_it_is_back() -> None:
    # PI-15
    async with EchoAgent("one") as agent, served(agent) as (origin, _), setup() as here:
        instance = await here.book.register(origin)
        await here.book.attach(instance.url)
        assert await here.polled(instance) == {"one": "ok"}
        port = agent.port
        await agent.__aexit__()
        await until(lambda: here.clock.waiting)
        here.clock.turn(60)
        await until(lambda: here.statuses(instance.url) == {"one": "error"})
        health = here.book.health(instance.url, "one")
        assert health is not None
        assert f"nothing answers at http://127.0.0.1:{port}/mcp" in health.message
        async with EchoAgent("one", port):
            await until(lambda: here.clock.waiting)
            here.clock.turn(60)
            await until(lambda: here.statuses(instance.url) == {"one": "ok"})


async def test_what_cannot_be_registered_is_told_and_not_kept() -> None:
    # PI-14
    async with EchoAgent("one") as agent, served(agent) as (origin, _), setup() as here:
        for typed, told in ((f"{origin}/x/server.json", "HTTP 404"), ("nonsense", "http:// or https://")):
            with pytest.raises(Fault, match=told):
                await here.book.register(typed)
        assert here.book.all() == ()
        await here.book.register(origin)
        with pytest.raises(Fault, match="registered already"):
            await here.book.register(f"{origin}/.well-known/mcp/server.json")
        assert len(here.book.all()) == 1


async def test_instances_are_kept_between_starts_and_attached_again_when_they_answer(tmp_path: Path) -> None:
    # PI-14
    store = InstanceStore(tmp_path / "config" / "workbench.instances.json")
    async with EchoAgent("one") as agent, served(agent) as (origin, registry):
        async with setup(store=store) as here, FakeRegistry([]).serving() as other:
            await here.book.attach((await here.book.register(origin)).url)
            await here.book.register(other)
        assert store.path.stat().st_mode & 0o777 == 0o600
        saved = json.loads(store.path.read_text())["instances"]
        assert [each["attached"] for each in saved] == [True, False]
        assert not [path for path in store.path.parent.iterdir() if path != store.path]

        registry.answers["/.well-known/mcp/server.json"] = _teapot()
        async with setup(store=store) as here:
            assert here.book.restore() == ()
            url = here.book.all()[0].url
            await until(lambda: here.book.instance(url).problem)  # type: ignore[union-attr]
            assert here.book.instance(url).attached  # type: ignore[union-attr]
            assert here.book.agents() == ()
            # Asking for it by hand fails the same way and gives nothing up.
            with pytest.raises(Fault, match="418"):
                await here.book.attach(url)
            registry.answers.clear()
            await until(lambda: here.clock.waiting)
            here.clock.turn(60)
            await until(
                lambda: [one.name for one in here.book.agents()] == [f"one@{here.book.all()[0].label}"]
            )

            await here.book.detach(url)
            await here.book.remove(here.book.all()[1].url)
        assert json.loads(store.path.read_text()) == {"instances": [{"url": url, "attached": False}]}


async def test_detaching_stops_the_trying(tmp_path: Path) -> None:
    store = InstanceStore(tmp_path / "instances.json")
    store.path.write_text('{"instances": [{"url": "http://127.0.0.1:9", "attached": true}]}')
    async with setup(store=store) as here:
        here.book.restore()
        url = here.book.all()[0].url
        await until(lambda: here.clock.waiting)
        await here.book.detach(url)
        assert not here.book.all()[0].attached
        await until(lambda: not here.clock.waiting)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "cannot be read"),
        ("[]", "no list named instances"),
        ('{"instances": [3, {"url": "http://u:s3cret@h:1"}]}', "entry 2: Registry URL: leave out the user"),
        ("x" * (1024 * 1024 + 1), "larger than"),
    ],
)
async def test_a_file_that_cannot_be_read_is_told_and_stops_nothing(
    tmp_path: Path, content: str, told: str
) -> None:
    store = InstanceStore(tmp_path / "instances.json")
    store.path.write_text(content)
    async with setup(store=store) as here:
        mistakes = here.book.restore()
        assert told in "\n".join(mistakes)
        assert "instances.json" in mistakes[0]
        assert "s3cret" not in "\n".join(mistakes)
        assert here.book.all() == ()


async def test_a_file_that_cannot_be_written_is_told_and_what_was_done_holds(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with (
        FakeRegistry([]).serving() as origin,
        setup(store=InstanceStore(tmp_path / "file" / "x.json")) as here,
    ):
        with pytest.raises(Fault, match="only until you quit") as failed:
            await here.book.register(origin)
        assert failed.value.type is FaultType.CONFIG
        assert len(here.book.all()) == 1


async def test_removing_while_attaching_leaves_nothing_behind() -> None:
    async with EchoAgent("one") as agent, served(agent) as (origin, _), setup() as here:
        instance = await here.book.register(origin)
        outcomes = await asyncio.gather(
            here.book.attach(instance.url),
            here.book.remove(instance.url),
            here.book.attach(instance.url),
            return_exceptions=True,
        )
        assert isinstance(outcomes[2], Fault)
        assert here.book.all() == ()
        assert here.links.open == []
        assert here.gauge() == {}
