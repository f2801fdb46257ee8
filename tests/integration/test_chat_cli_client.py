"""The client of the agents' API: pages, refusals, tokens, and what is no fleet."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.certificates import authority, self_signed
from support.chat_api import ChatApi, chat_api
from support.live import write_project

from pallas.client import FleetAddress, NoFleetAnswers, RestClient, connect, fault_in
from pallas.client.chat_stream import ChatStream
from pallas.client.own_fleet import is_there, needed
from pallas.client.rest_client import TokenCandidates
from pallas.config import load_project
from pallas.model import Fault, FaultType
from pallas.surfaces.control.token_file import store_token


@pytest.fixture(scope="module")
def served() -> Iterator[ChatApi]:
    with chat_api() as api:
        yield api


@pytest.fixture
def fleet(served: ChatApi) -> ChatApi:
    served.steps, served.status, served.token = [{"type": "text", "delta": "Hello."}], {}, ""
    served.asked.clear()
    return served


async def test_a_list_is_read_page_by_page_and_no_further_than_wanted(fleet: ChatApi) -> None:
    async with connect(fleet.url) as api:
        assert [each["name"] async for each in api.items("/agents")] == ["research", "vision"]
        assert [each["name"] async for each in api.items("/agents", most=1)] == ["research"]


async def test_what_is_refused_is_the_fleets_own_fault(fleet: ChatApi) -> None:
    body = {
        "error": "no \x1b[31m",
        "code": 7,
        "data": {"type": "TIMEOUT", "retryable": True, "reason": "in_use"},
    }
    fleet.status["GET /agents"] = (409, body)
    async with connect(fleet.url) as api:
        with pytest.raises(Fault) as fault:
            await api.get("/agents")
        found = fault.value
        assert (found.type, found.code, found.retryable) == (FaultType.TIMEOUT, 7, True)
        assert found.message == "no ␛[31m"
        assert found.data["reason"] == "in_use"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, {"detail": "Not Found"}, NoFleetAnswers),
        (200, ["no object"], Fault),
        (502, {}, Fault),
    ],
)
async def test_what_is_no_fleet_is_told_apart(fleet: ChatApi, status: int, body: object, kind: type) -> None:
    fleet.status["GET /agents"] = (status, body)  # type: ignore[assignment]
    async with connect(fleet.url) as api:
        with pytest.raises(kind) as fault:
            _ = [each async for each in api.items("/agents")]
        assert isinstance(fault.value, NoFleetAnswers) is (kind is NoFleetAnswers)


async def test_where_nothing_listens_or_no_http_is_spoken_there_is_no_fleet() -> None:
    async with connect("http://127.0.0.1:1") as api:
        with pytest.raises(NoFleetAnswers, match="nothing answers"):
            await api.get("/agents")

    async def shut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(shut, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, connect(f"http://127.0.0.1:{port}") as api:
        with pytest.raises(NoFleetAnswers, match="did not answer with HTTP"):
            await api.get("/agents")


async def test_on_loopback_the_token_that_this_user_keeps_is_tried_when_one_is_asked_for(
    fleet: ChatApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    fleet.token = "kept-for-this-user-alone"
    place = FleetAddress(fleet.url)
    async with connect(place) as api:
        with pytest.raises(Fault, match="give one that it knows with --token"):
            await api.get("/agents")
    for name, token in (("other", "of-another-fleet"), ("this", fleet.token)):
        store_token(token, tmp_path / name, place.port)
    async with connect(place) as api:
        assert await api.get("/whoami")
        assert fleet.token not in repr(vars(api))
    # One that was given is the only one.
    async with connect(place, "given") as api:
        with pytest.raises(Fault, match="the token that was given") as fault:
            await api.get("/agents")
        assert fault.value.type is FaultType.AUTH


async def test_the_token_that_a_project_starts_its_fleet_with_is_tried_on_loopback_alone(
    fleet: ChatApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    fleet.token = "of-the-project-s-environment"
    monkeypatch.setenv("PALLAS_CONTROL_TOKEN", fleet.token)
    async with connect(FleetAddress(fleet.url, tmp_path)) as api:
        assert await api.get("/whoami")
    async with connect(FleetAddress(fleet.url)) as api:  # nobody said whose fleet that is
        with pytest.raises(Fault, match="or PALLAS_CONTROL_TOKEN in"):
            await api.get("/agents")
    assert not TokenCandidates(FleetAddress("http://192.0.2.1:1", tmp_path)).next("")


async def test_where_no_token_would_do_none_is_asked_for(fleet: ChatApi) -> None:
    body = {"error": "it is closed", "code": -32003, "data": {"type": "AUTH", "closed": True}}
    fleet.status = {"GET /agents": (401, body)}
    async with connect(fleet.url) as api:
        with pytest.raises(Fault) as refused:
            await api.get("/agents")
    assert refused.value.message == "it is closed"


async def test_a_fleet_of_another_project_at_the_same_port_is_not_this_ones(
    fleet: ChatApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = FleetAddress(fleet.url, tmp_path / "mine")
    assert await is_there(place)
    store_token("token-of-theirs", tmp_path / "theirs", place.port)
    assert not await is_there(place)
    store_token("token-of-mine", tmp_path / "mine", place.port)
    assert await is_there(place)
    assert not await is_there(FleetAddress("http://127.0.0.1:1", tmp_path / "mine"))


async def test_over_tls_the_projects_own_certificate_is_believed_and_no_other(tmp_path: Path) -> None:
    by_others = authority(tmp_path).issue(tmp_path)
    theirs = self_signed(tmp_path, "theirs")[0]
    for certfile, keyfile in (self_signed(tmp_path), by_others):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certfile, keyfile)
        with chat_api(tls=context) as fleet:
            async with connect(FleetAddress(fleet.url, tmp_path, certfile)) as api:
                assert await api.get("/whoami")
                chunks = [chunk["type"] async for chunk in api.chat("research", {"message": "hi"})]
                assert chunks == ["text", "final"]
            for place in (FleetAddress(fleet.url), FleetAddress(fleet.url, tmp_path, theirs)):
                async with connect(place) as api:
                    with pytest.raises(NoFleetAnswers, match="is not trusted"):
                        await api.get("/whoami")


async def test_a_stream_in_which_nothing_is_heard_is_given_up(fleet: ChatApi) -> None:
    # AG-25
    fleet.steps = [{"type": "text", "delta": "One"}, 30.0]
    api = RestClient(FleetAddress(fleet.url))
    stream = ChatStream(api.open, "/agents/research/chat", {"message": "hi"}, fleet.url, idle=0.3)
    try:
        assert (await anext(stream))["delta"] == "One"
        assert (stream.run_id, stream.thread_id) == ("run-1", "conv-1")
        with pytest.raises(Fault, match="sent nothing for") as fault:
            await anext(stream)
        assert fault.value.type is FaultType.TIMEOUT
    finally:
        await stream.aclose()
        await api.close()


def test_an_error_chunk_is_the_fault_it_tells() -> None:
    # AG-15
    told = fault_in({"type": "error", "message": "slow", "code": -32001, "data": {"type": "TIMEOUT"}})
    assert (told.type, told.message) == (FaultType.TIMEOUT, "slow")
    bare = fault_in({"type": "error", "message": "broke\x1b"})
    assert (bare.type, bare.message) == (FaultType.INTERNAL, "broke␛")


def test_a_fleet_for_one_call_has_what_the_agent_needs_and_no_port_of_others(tmp_path: Path) -> None:
    write_project(
        tmp_path,
        {"desk": None, "research": None, "vision": None},
        keys={"desk": {"depends_on": ["research"]}},
        top={"bind": "0.0.0.0"},
    )
    called = load_project(tmp_path, {}).agents["research"].port
    (tmp_path / "fastagent.config.yaml").write_text(
        "default_model: passthrough\n"
        f"mcp: {{servers: {{research: {{url: 'http://127.0.0.1:{called}/mcp', auth: {{oauth: false}}}}}}}}\n"
    )
    project = load_project(tmp_path, {})
    desk = needed(project, "desk")
    assert {name: each.port for name, each in desk.agents.items()} == {"desk": 0, "research": called}
    assert desk.bind == "127.0.0.1"
    assert desk.port == desk.registry_port != project.registry_port
    research = needed(project, "research")
    assert {name: each.port for name, each in research.agents.items()} == {"research": 0}
    # One that is made over the API may need any of them.
    assert set(needed(project, "made").agents) == {"desk", "research", "vision"}
