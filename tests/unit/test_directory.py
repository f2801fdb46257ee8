"""Who can be found, by whom, and which agent is meant."""

import pytest
from support.executors import FakeExecutor
from support.leased import ME, YOU, Found, House, down

from pallas.executors import ExecutorInfo
from pallas.model import AgentChanged, AgentKind, AgentState, Fault, FaultType, HealthStatus, ProviderFacts
from pallas.runs.agent_directory import AgentDirectory
from pallas.telemetry.event_hub import EventHub


def agent(name: str, kind: AgentKind = "llm", *capabilities: str, **more: object) -> Found:
    return Found(FakeExecutor(), name=name, kind=kind, capabilities=capabilities, **more)  # type: ignore[arg-type]


def test_a_capability_finds_those_that_list_it_and_one_that_nobody_has_finds_none() -> None:
    # DR-3
    house = House(agent("a", "llm", "coding", "review"), agent("b", "worker", "review"), agent("c"))
    assert [each.id for each in house.directory.infos(ME)] == ["a", "b", "c"]
    found = house.directory.infos(ME, "review")
    assert [(each.id, each.match) for each in found] == [
        ("a", "lists the capability review"),
        ("b", "lists the capability review"),
    ]
    assert house.directory.infos(ME, "nonsense") == ()
    assert house.directory.infos(ME, "") == ()


def test_the_agent_in_this_process_stands_before_a_worker_of_its_id_and_says_so() -> None:
    # DR-4
    here, there, far = agent("x", "handler"), agent("x", "worker"), agent("x", "remote")
    directory = AgentDirectory(lambda: [far, there], lambda: [here, agent("y")], hub=EventHub())
    x, y = directory.infos(ME)
    assert (x.id, x.kind, x.shadows) == ("x", "handler", ("worker", "remote"))
    assert (y.id, y.shadows) == ("y", ())
    entry = directory.entry("x")
    assert entry is not None
    assert entry.agent is here


def test_who_there_is_is_asked_once_until_something_changes() -> None:
    # DR-5
    house = House(agent("a"))
    house.looked = 0
    for _ in range(3):
        house.directory.infos(ME)
        house.directory.resolve("a", ME)
    assert house.looked == 1
    house.add(agent("b", "worker"))
    assert [each.id for each in house.directory.infos(ME)] == ["a", "b"]
    assert house.looked == 2
    house.hub.publish(AgentChanged(agent="b", state=AgentState.READY))
    assert house.directory.resolve("b", ME) == "b"
    assert house.looked == 3


def test_how_an_agent_is_shows_at_once_though_it_is_cached() -> None:
    # DR-31
    one = agent("a")
    house = House(one)
    assert house.directory.infos(ME)[0].status == "ready"
    one.full = True
    busy = house.directory.infos(ME)[0]
    assert (busy.status, "capacity" in busy.reason) == ("busy", True)
    one.full = False
    one.status, one.problem = HealthStatus.DEGRADED, "no search"
    assert (house.directory.infos(ME)[0].status, house.directory.infos(ME)[0].reason) == (
        "ready",
        "no search",
    )
    down(one)
    one.problem = ""
    lost = house.directory.infos(ME)[0]
    assert (lost.status, lost.reason) == (
        "unavailable",
        "it failed too often and is not restarted automatically",
    )


def test_without_an_id_the_default_is_meant_then_the_first_here_then_a_worker_then_a_remote_one() -> None:
    # DR-6 X14
    far, worker, first, second = agent("far", "remote"), agent("w", "worker"), agent("a"), agent("b")
    house = House(far, worker, first, second, default="b")
    assert house.directory.resolve(None, ME) == "b"
    house.default = ""
    assert house.directory.resolve(None, ME) == "a"
    house.remove(first)
    house.remove(second)
    assert house.directory.resolve(None, ME) == "w"
    house.remove(worker)
    assert house.directory.resolve(None, ME) == "far"


def test_a_default_that_is_not_there_is_no_reason_to_ask_another() -> None:
    house = House(agent("a"), default="gone")
    with pytest.raises(Fault, match="Agent not found: gone"):
        house.directory.resolve(None, ME)


def test_one_that_is_not_there_is_not_found_and_those_that_are_come_along() -> None:
    # DR-7
    house = House(agent("coder"), agent("writer"))
    with pytest.raises(Fault) as caught:
        house.directory.resolve("zz", ME)
    fault = caught.value
    assert (fault.message, fault.type, fault.code, fault.retryable) == (
        "Agent not found: zz",
        FaultType.UPSTREAM,
        -32002,
        False,
    )
    assert fault.data["agents"] == ["coder", "writer"]
    with pytest.raises(Fault) as caught:
        house.directory.resolve("codr", ME)
    assert caught.value.data["suggestion"] == "coder"


def test_where_there_is_nobody_at_all_that_is_said() -> None:
    # DR-2
    house = House()
    assert house.directory.infos(ME) == ()
    for asked in (None, "zz"):
        with pytest.raises(Fault, match=r"^No agents registered$") as caught:
            house.directory.resolve(asked, ME)
        assert (caught.value.type, caught.value.code) == (FaultType.CONFIG, -32004)


def test_agents_that_a_principal_may_not_run_do_not_exist_for_it() -> None:
    house = House(agent("open"), agent("secret", "llm", "coding"), default="secret")
    house.hidden.add((ME.id, "secret"))
    assert [each.id for each in house.directory.infos(ME)] == ["open"]
    assert house.directory.infos(ME, "coding") == ()
    assert house.directory.resolve(None, ME) == "open"
    assert house.directory.resolve(None, YOU) == "secret"
    with pytest.raises(Fault, match="Agent not found: secret") as caught:
        house.directory.resolve("secret", ME)
    assert caught.value.data["agents"] == ["open"]
    assert "suggestion" not in caught.value.data


def test_what_is_told_of_an_agent_cannot_drive_a_terminal() -> None:
    known = (ProviderFacts("p", ("m\x1b[2J",), display_name="x\x07", description="y\u202e"),)
    one = agent("a", "llm", "co\x1bding", description="hello\x1b]0;me\x07")
    one.executor = FakeExecutor(info=ExecutorInfo(providers_known=known))
    (info,) = House(one).directory.infos(ME)
    assert info.providers is not None
    told = info.description + info.capabilities[0] + info.providers[0].models[0]
    told += info.providers[0].display_name + info.providers[0].description
    assert not set(told) & set("\x1b\x07\u202e")


def test_one_without_a_choice_of_providers_has_no_such_field() -> None:
    (info,) = House(agent("a")).directory.infos(ME)
    assert info.providers is None
