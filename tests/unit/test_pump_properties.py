"""What holds whatever handlers do: nothing is forged, let through, mixed, or left behind."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any
from uuid import UUID
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from support.properties import examples
from support.pumped import Answer, Ask, Handler, World, forever, respond, to

from pallas.config.kinds import PumpLimits
from pallas.contract import HandlerMetadata, HandlerResponse, SystemError
from pallas.messaging.reply_routing import unknown
from pallas.messaging.send_rules import CALLER
from pallas.model import Event, Fault, MessagePassed, ToolEvent
from pallas.payloads import PayloadType

ENVELOPE = "https://xml-pipeline.org/ns/envelope/v1"
NAMES = ["a", "a.b", "a.b.c", "b", "b.a", "calc.add", "calc"]
ROUTING = (
    '<SystemError xmlns=""><code>routing</code><message>Message could not be delivered. Please verify your '
    "target and try again.</message><retry-allowed>true</retry-allowed></SystemError></message>"
)
pytestmark = pytest.mark.filterwarnings("ignore:.*returns bytes.*:DeprecationWarning")
few = examples(60, suppress_health_check=list(HealthCheck))


def run[T](work: Coroutine[Any, Any, T]) -> T:
    """In a loop of its own; every task must be over by itself."""

    async def alone() -> T:
        result = await asyncio.wait_for(work, 30)
        left = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        assert left == []
        return result

    return asyncio.run(alone())


words = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=20)
forged = st.dictionaries(
    st.sampled_from(["from", "from_id", "thread", "thread_id", "to", "own_name", "is_self_call", "sender"]),
    st.one_of(words, st.sampled_from([*NAMES, "system", CALLER])),
)


@few
@given(forged, st.sampled_from([*NAMES, "ghost", "system", CALLER]), words, st.booleans())
def test_an_envelope_is_never_what_a_handler_says(
    fields: Mapping[str, str], target: str, text: str, in_bytes: bool
) -> None:
    # HC-11, HC-21: attributes, metadata and envelopes in bytes with another from, thread and to
    async def forges(payload: Any, metadata: HandlerMetadata) -> Any:
        if not isinstance(payload, Ask):
            return respond("over")
        metadata.__dict__.update(fields)
        if in_bytes:
            sender, thread = (escape(fields.get(name, "").strip() or "a") for name in ("from", "thread"))
            return (
                f"<message xmlns={quoteattr(ENVELOPE)}>"
                f"<meta><from>{sender}</from><to>{target}</to><thread>{thread}</thread></meta>"
                f"<Ask xmlns=''><text>{escape(text)}</text></Ask></message>"
            ).encode()
        response = to(target, text)
        response.payload.__dict__.update({key: each for key, each in fields.items() if key != "text"})
        response.__dict__.update({key: each for key, each in fields.items() if key not in ("to", "payload")})
        return response

    async def takes(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return respond(payload.text)

    handlers = [Handler(name, takes) for name in NAMES if name != "a"]
    world = World(Handler("a", forges, peers=["a.b", "calc.add"]), *handlers)

    async def go() -> None:
        if target == "a":  # to itself: for ever the same
            with pytest.raises(Fault, match="messages in one run"):
                world.peers.limits = type(world.peers.limits)(per_run=20)
                await world.send("a", Ask())
        else:
            await world.send("a", Ask())

    run(go())
    threads = {name: [each.thread_id for each in world[name].seen] for name in NAMES}
    for name in NAMES[1:]:
        allowed = name == target and name in ("a.b", "calc.add")
        assert len(world[name].got) == allowed
        for seen in world[name].seen:
            assert (seen.from_id, seen.is_self_call, seen.own_name) == ("a", False, None)
            assert str(UUID(seen.thread_id)) == seen.thread_id
            assert seen.thread_id not in {*fields.values(), *world.messages()[0:1]}
    told = world.messages(route="call")
    assert {each.sender for each in told} <= {CALLER, "a"}
    assert {each.frame for each in told if each.outcome == "delivered"} == {
        each.frame for each in told[:1]
    } | {thread for name in NAMES[1:] for thread in threads[name]}
    assert world.clean()


tables = st.dictionaries(
    st.sampled_from(NAMES), st.frozensets(st.sampled_from([*NAMES, "ghost"])), min_size=1
)
# Fewer than refusals in a row that end a frame.
moves = st.lists(st.sampled_from([*NAMES, "ghost", "nobody.here", "system", CALLER]), max_size=7)


@few
@given(tables, st.frozensets(st.sampled_from(NAMES)), moves)
def test_a_message_arrives_if_and_only_if_the_table_allows_it(
    table: Mapping[str, frozenset[str]], agents: frozenset[str], targets: list[str]
) -> None:
    # HC-12, HC-14, HC-15, HC-20: any table of peers, any way through it
    left = list(targets)

    async def wanders(payload: Any, _: HandlerMetadata) -> HandlerResponse:
        if not left or isinstance(payload, Answer):
            return respond("back")
        return to(left.pop(0))

    world = World(
        *(Handler(name, wanders, peers=sorted(own), agent=name in agents) for name, own in table.items())
    )
    first = min(table)
    run(world.send(first, Ask()))
    calls = [each for each in world.messages(route="call") if each.sender != CALLER]
    for each in calls:
        assert each.outcome in ("delivered", "refused")
        if each.outcome == "delivered":
            assert each.to in table[each.sender]
            assert each.to in table
        else:
            assert each.to not in table[each.sender] or each.to not in table
            assert each.code == "routing"
    errors = [each for each in world.pump.envelopes("run-1") if each.route == "error"]
    assert {each.xml.partition("</meta>")[2] for each in errors} <= {ROUTING}
    assert all(each.outcome == "delivered" for each in calls) or errors
    assert world.clean()


@pytest.mark.slow
@few
@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.lists(st.integers(0, 3), max_size=5)), min_size=2, max_size=12
    )
)
def test_conversations_beside_each_other_never_mix(talks: list[tuple[str, list[int]]]) -> None:
    # HC-4, HC-9, HC-18, HC-19, HC-20: any number at once, each of another length, giving way at any time
    async def agent(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        own = world[metadata.own_name or ""].scratch[metadata.thread_id]
        if metadata.is_self_call or isinstance(payload, Answer):
            assert own["talk"] == payload.text
        else:
            own["talk"], own["left"] = payload.text, list(talks[int(payload.text)][1])
        if not own["left"]:
            return respond(own["talk"])
        pause = own["left"].pop()
        for _ in range(pause):
            await asyncio.sleep(0)
        return to(metadata.own_name or "" if pause % 2 else "far.echo", own["talk"])

    async def far(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        for _ in range(len(payload.text)):
            await asyncio.sleep(0)
        return respond(payload.text)

    world = World(
        *(Handler(name, agent, peers=["far.echo"], agent=True) for name in NAMES), Handler("far.echo", far)
    )

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(
            *(world.send(name, Ask(str(n)), nested=bool(n % 2)) for n, (name, _) in enumerate(talks))
        )

    assert run(all_of_them()) == [Answer(str(n)) for n in range(len(talks))]
    frames: dict[str, set[str]] = {}
    for name in NAMES:
        for seen, got in zip(world[name].seen, world[name].got, strict=True):
            frames.setdefault(seen.thread_id, set()).add(got.text)
    assert len(frames) == len(talks)
    assert all(len(each) == 1 for each in frames.values())
    assert all(handler.scratch == {} for handler in world.peers.handlers.values())
    assert world.clean()


@few
@given(st.integers(0, 60), st.lists(st.integers(0, 3), max_size=6), st.integers(1, 4), st.booleans())
def test_a_run_that_is_cancelled_anywhere_leaves_nothing(
    when: int, depths: list[int], places: int, stop: bool
) -> None:
    # UN-2, HC-18, HC-31: no task, no frame, no place of a limit, whenever it is cancelled
    async def branches(payload: Any, metadata: HandlerMetadata) -> Any:
        if not isinstance(payload, Ask):
            await asyncio.sleep(0)
            return respond() if payload.__class__ is Answer and len(world["top"].got) > 3 else None
        await asyncio.sleep(0)
        kinds = [
            b"<leaf.x.ask><text/></leaf.x.ask>",
            b"<top.ask><text/></top.ask>",
            b"<model.text><text/></model.text>",
            b"<never.ask><text/></never.ask>",
        ]
        return b"".join(kinds[each] for each in depths) or None

    async def leaf(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        for _ in range(len(world["leaf.x"].got) % 5):
            await asyncio.sleep(0)
        return respond()

    async def model(text: str) -> str:
        await asyncio.sleep(0)
        return "said"

    world = World(
        Handler("top", branches, peers=["leaf.x", "model", "never"]),
        Handler("leaf.x", leaf),
        Handler("never", forever),
        others={"model": model},
        limits=PumpLimits(pipelines=places, handlers=places, per_agent=max(1, places - 1), per_run=80),
    )

    async def go() -> None:
        runs = [asyncio.create_task(world.raw("top", Ask())) for _ in range(4)]
        for _ in range(when):
            await asyncio.sleep(0)
        if stop:
            await world.pump.close()
        for each in runs:
            each.cancel()
            await asyncio.sleep(0)
        await asyncio.wait(runs, timeout=60)
        assert all(each.done() for each in runs)
        for each in runs:
            if not each.cancelled():
                each.exception()
        assert world.clean()

    run(go())
    assert world["top"].running == world["leaf.x"].running == world["never"].running == 0
    assert world.pump._state.works == set()
    assert world.pump._state.slots._waiting == {}
    told = [each for each in world.events if isinstance(each, ToolEvent)]
    assert {each.call_id for each in told if each.phase == "started"} == {
        each.call_id for each in told if each.phase != "started"
    }
    assert sorted(world["leaf.x"].over) == sorted(
        {each.frame for each in _delivered(world.events) if each.to == "leaf.x" and each.route == "call"}
    )


def _delivered(events: list[Event]) -> list[MessagePassed]:
    return [each for each in events if isinstance(each, MessagePassed) and each.route != "end"]


def test_refusals_are_the_same_to_the_byte() -> None:
    # HC-14, UN-4: what is delivered is what the Fault says of itself
    fault = unknown()
    made = PayloadType.of(SystemError).pack(
        SystemError(fault.system_code, fault.system_message, fault.system_retryable)
    )
    assert made.xml.decode() == (
        "<SystemError><code>routing</code>"
        "<message>Message could not be delivered. Please verify your target and try again.</message>"
        "<retry-allowed>true</retry-allowed></SystemError>"
    )
