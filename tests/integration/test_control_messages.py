"""Messages between handlers over the control API: for the full token, page by page, and as events."""

from dataclasses import replace

from support.control import FULL, READ, messages, serving
from support.fake_fleet import NOON, FakeFleet
from support.letters import letter, passed
from support.waiting import until

from pallas.model import BackendChosen, Envelope, MessagePassed, TodoChanged, codec
from pallas.surfaces.control.operation_routes import MAX_XML
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource


def told(fleet: FakeFleet) -> tuple[Envelope, ...]:
    fleet.letters["r1"] = tuple(letter(number, "greeter", "shouter", run="r1") for number in range(1, 8))
    return fleet.letters["r1"]


async def test_messages_of_a_run_are_read_page_by_page_with_the_full_token() -> None:
    fleet = FakeFleet()
    kept = told(fleet)
    async with serving(fleet) as served, served.client() as http:
        found = (await http.get("/runs/r1/messages", params={"after": 2, "limit": 3})).json()
        assert codec.decode(tuple[Envelope, ...], found) == kept[2:5]
        assert (await http.get("/runs/r1/messages", params={"after": 7})).json() == []
        assert (await http.get("/runs/gone/messages")).json() == []
        assert (await http.get("/runs/r1/messages", params={"after": "x"})).status_code == 400


async def test_a_page_of_large_messages_has_fewer_of_them_and_never_none() -> None:
    fleet = FakeFleet()
    fleet.letters["r1"] = tuple(replace(each, xml="x" * (MAX_XML - 1_000)) for each in told(fleet)[:3])
    async with serving(fleet) as served, served.client() as http:
        numbers = [each["number"] for each in (await http.get("/runs/r1/messages")).json()]
        assert numbers == [1]


async def test_a_token_that_may_only_look_reads_no_messages_and_not_why_one_was_refused() -> None:
    fleet = FakeFleet()
    told(fleet)
    refused = passed(1, "greeter", "secret", outcome="refused", code="routing", detail="secret: no peer")
    async with serving(fleet) as served, served.client(READ) as http:
        answer = await http.get("/runs/r1/messages")
        assert answer.status_code == 403
        assert answer.json()["data"]["type"] == "AUTH"
        assert fleet.read_letters == []
        fleet.say(refused)
        for token, detail in ((READ, ""), (None, "secret: no peer")):
            client = served.client(token) if token else served.client()
            async with client as reader, reader.stream("GET", "/events") as stream:
                async for kind, _, document in messages(stream):
                    if kind == "events":
                        (event,) = document["events"]
                        assert (event["type"], event["detail"]) == ("MessagePassed", detail)
                        break


def test_the_events_of_messages_todos_and_backends_travel_whole() -> None:
    of = {"run_id": "r1", "agent": "greeter"}
    events = (
        passed(3, "greeter", "shouter", span_id="s"),
        TodoChanged(at=NOON, todo="t", actor="greeter", frame="f", status="raised", wait_for="Reply", **of),
        BackendChosen(at=NOON, actor="greeter", model="m", backend="b", why="least loaded", **of),
    )
    for event in events:
        assert codec.decode_event(codec.loads(codec.dumps(codec.encode_event(event)))) == event


async def test_a_fleet_elsewhere_is_read_like_one_in_this_process() -> None:
    fleet = FakeFleet()
    kept = told(fleet)
    async with serving(fleet) as served:
        remote = RemoteFleet(served.url, TokenSource(served.url, FULL))
        remote.start()
        try:
            await until(lambda: remote.can_control)
            assert await remote.envelopes("r1", 5) == kept[5:]
            fleet.say(passed(8, "shouter", "greeter", route="respond"))
            await until(lambda: [e for e in remote.since(0).events if isinstance(e, MessagePassed)])
        finally:
            remote.stop()
