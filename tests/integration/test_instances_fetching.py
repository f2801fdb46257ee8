"""A registry that is fetched: what is asked, what is followed, and what is wrong with it."""

import asyncio
import json

import pytest
from starlette.responses import RedirectResponse, Response
from support.fake_downstreams import talking
from support.ports import free_ports
from support.registries import FakeRegistry, entry

from pallas.model import Fault, FaultType
from pallas_tui.instances.registry_address import WELL_KNOWN, document_url
from pallas_tui.instances.registry_reader import MAX_DOCUMENT, read_registry

HOSTILE = "\x1b]52;c;cm0=\x07[@click=app.quit]x[/] \u202egnp.exe\x1b[31m"


async def test_a_registry_is_fetched_as_the_contract_says(monkeypatch: pytest.MonkeyPatch) -> None:
    # PI-14
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    fake = FakeRegistry([entry("ns/good")])
    async with fake.serving() as origin:
        listing = await read_registry(document_url(origin))
    assert [agent.id for agent in listing.agents] == ["good"]
    (request,) = fake.requests
    assert request.headers["accept"] == "application/json"
    assert "authorization" not in request.headers


async def failure(url: str, **options: float) -> Fault:
    with pytest.raises(Fault) as failed:
        await read_registry(document_url(url), **options)
    assert url.removesuffix("/") in failed.value.message
    return failed.value


async def test_whatever_is_wrong_with_a_registry_is_told_with_what_to_do() -> None:
    (closed,) = free_ports(1)
    assert (await failure(f"http://127.0.0.1:{closed}")).type is FaultType.TRANSPORT
    fake = FakeRegistry()
    async with fake.serving() as origin:
        assert "answered HTTP 404" in (await failure(f"{origin}/elsewhere")).message
        for body, told in (
            ("<html>", "not JSON"),
            ("[" * 100_000, "not JSON"),
            ("[]", "no list named servers"),
            ("x" * (MAX_DOCUMENT + 1), "more than 4 MiB"),
        ):
            fake.answers[WELL_KNOWN] = Response(body, media_type="application/json")
            fault = await failure(origin)
            assert told in fault.message
            assert fault.type is FaultType.PROTOCOL
        headers = {"content-encoding": "gzip"}
        fake.answers[WELL_KNOWN] = Response(b"\x1f\x8b", headers=headers, media_type="application/json")
        assert "compressed" in (await failure(origin)).message


async def test_a_document_of_almost_four_mebibytes_is_read() -> None:
    fake = FakeRegistry()
    body = json.dumps({"servers": [entry("ns/good")], "padding": "x" * (MAX_DOCUMENT - 1000)})
    fake.answers[WELL_KNOWN] = Response(body, media_type="application/json")
    async with fake.serving() as origin:
        assert len((await read_registry(document_url(origin))).agents) == 1


async def test_redirects_stay_with_the_server_they_come_from() -> None:
    fake, other = FakeRegistry([entry("ns/good")]), FakeRegistry([entry("evil/agent")])
    async with fake.serving() as origin, other.serving() as elsewhere:
        fake.answers["/moved/server.json"] = RedirectResponse(WELL_KNOWN)
        fake.answers["/away/server.json"] = RedirectResponse(f"{elsewhere}{WELL_KNOWN}")
        fake.answers["/round/server.json"] = RedirectResponse("/round/server.json")
        assert len((await read_registry(f"{origin}/moved/server.json")).agents) == 1
        fault = await failure(f"{origin}/away/server.json")
        assert elsewhere in fault.message
        assert "circle" in (await failure(f"{origin}/round/server.json")).message
    assert not other.requests


async def test_a_registry_that_never_ends_its_answer_is_given_up() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    async with talking(head) as origin:
        fault = await asyncio.wait_for(failure(origin, timeout=0.3), 60)
    assert fault.type is FaultType.TIMEOUT
    assert "0.3 s" in fault.message
