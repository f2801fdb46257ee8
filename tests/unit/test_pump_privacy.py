"""A handler reaches its peers, itself and its caller, and learns of nobody else."""

import json
import logging
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pumped import Answer, Ask, Handler, World, echo, forever, knows, respond, to

from pallas.contract import HandlerMetadata, HandlerResponse, SystemError
from pallas.messaging.peer_instructions import WARNING, instructions
from pallas.messaging.send_rules import CALLER, TODO, Recipient, recipient_of
from pallas.model import Fault, FaultType

# As docs/typed-handlers.md#peers has it, to the letter.
ROUTING = SystemError(
    "routing", "Message could not be delivered. Please verify your target and try again.", True
)
ROUTING_XML = (
    b"<SystemError><code>routing</code><message>Message could not be delivered. Please verify your target "
    b"and try again.</message><retry-allowed>true</retry-allowed></SystemError>"
)
NAMES = st.sampled_from(["a", "a.b", "a.b.c", "b", "system", CALLER, TODO, "", "A", " a"])


@knows
@dataclass
class Order:
    """What to buy.

    One thing at a time.
    """

    what: str
    count: int = 1


@given(NAMES, st.booleans(), st.frozensets(NAMES), NAMES, st.none() | NAMES)
def test_who_may_send_to_whom(
    sender: str, agent: bool, peers: frozenset[str], caller: str, target: str | None
) -> None:
    # HC-9, HC-12, HC-15, HC-16, X2, X3
    found = recipient_of(sender, agent, peers, caller, target)
    if target is None:
        assert found is Recipient.RESPOND
    elif target == sender:
        assert found is Recipient.SELF
    elif target == TODO:
        assert found is (Recipient.TODO if agent else Recipient.REFUSED)
    elif target == caller:
        assert found is (Recipient.CALL if agent and target in peers else Recipient.RESPOND)
    else:
        assert found is (Recipient.CALL if target in peers else Recipient.REFUSED)
    # Names are never cut apart: one that only begins like another is another (HC-20).
    if found is Recipient.CALL:
        assert target in peers


def tries(first: str, then: str = "") -> Handler:
    """An agent that sends to ``first``, and to its peer once that was refused."""

    async def trying(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, SystemError):
            return to(then) if then else respond(f"{payload.code}, told by {metadata.from_id}")
        return respond(f"{metadata.from_id}: {payload.text}") if isinstance(payload, Answer) else to(first)

    return Handler("tries", trying, peers=[then] if then else [], agent=True)


@pytest.mark.parametrize("agent", [True, False])
async def test_who_is_no_peer_is_never_called_and_the_sender_may_try_again(
    agent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    # HC-12, HC-13, X1
    trying = tries("secret", "peer")
    trying.is_agent = agent
    world = World(trying, Handler("secret", echo), Handler("peer", echo))
    with caplog.at_level(logging.WARNING, "pallas.messaging"):
        assert await world.send("tries", Ask()) == Answer("peer: ")
    assert world["secret"].got == []
    assert trying.got[1] == ROUTING
    assert len({each.thread_id for each in trying.seen}) == 1
    [line] = [each.getMessage() for each in caplog.records]
    assert "tries" in line
    assert "secret" in line
    [refused] = world.messages(outcome="refused")
    assert (refused.sender, refused.to, refused.code) == ("tries", "secret", "routing")


async def test_forbidden_and_unknown_targets_cannot_be_told_apart() -> None:
    # HC-14: nor one that is declared and not there, or of another kind and not a peer
    async def model(text: str) -> str:
        return text

    got: list[tuple[bytes, str]] = []
    for target in ("secret", "ghost", "model", "declared"):
        trying = tries(target)
        trying.peers = frozenset({"declared"})
        world = World(trying, Handler("secret", echo), others={"model": model})
        assert await world.send("tries", Ask()) == Answer("routing, told by system")
        error = next(each for each in world.pump.envelopes("run-1") if each.route == "error")
        got.append((ROUTING_XML, error.xml.partition("</meta>")[2]))
        assert world.peers.asked == []
    assert len({xml for _, xml in got}) == 1
    assert got[0][1].replace(' xmlns=""', "").removesuffix("</message>").encode() == ROUTING_XML


@pytest.mark.parametrize("agent", [True, False])
async def test_without_peers_there_are_oneself_and_ones_caller(agent: bool) -> None:
    # HC-15, X2
    async def alone(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, SystemError):
            return to("alone", "again")
        return HandlerResponse(Answer("ok"), "calls") if payload.text == "again" else to("other")

    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("alone") if isinstance(payload, Ask) else respond(payload.text)

    world = World(
        Handler("alone", alone, agent=agent), Handler("other", echo), Handler("calls", calls, peers=["alone"])
    )
    assert await world.send("calls", Ask()) == Answer("ok")
    assert world["other"].got == []
    assert world["alone"].seen[2].is_self_call


async def test_a_callers_caller_is_nobody_to_a_handler() -> None:
    # HC-15, HC-17
    async def passes_on(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Answer | SystemError):
            return respond(str(payload))
        return to({"top": "middle", "middle": "bottom"}[metadata.own_name or ""])

    async def bottom(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("top") if isinstance(payload, Ask) else respond(payload.code)

    world = World(
        Handler("top", passes_on, peers=["middle"], agent=True),
        Handler("middle", passes_on, peers=["bottom"], agent=True),
        Handler("bottom", bottom, agent=True),
    )
    await world.send("top", Ask())
    assert len(world["top"].got) == 2
    assert world["bottom"].got == [Ask(), ROUTING]
    told = str(world["bottom"].seen) + str(world["bottom"].got)
    assert "top" not in told
    assert all(each.usage_instructions == "" for each in world["bottom"].seen)


async def test_metadata_and_payloads_name_nobody_but_the_sender_and_the_peers() -> None:
    # HC-17: the failure of somebody further down has no name in it either
    async def fails(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        raise RuntimeError("hidden-database at 10.0.0.1")

    async def middle(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return HandlerResponse.respond(payload) if isinstance(payload, SystemError) else to("hidden")

    async def top(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("middle") if isinstance(payload, Ask) else respond("over")

    world = World(
        Handler("top", top, peers=["middle"], agent=True),
        Handler("middle", middle, peers=["hidden"], agent=True),
        Handler("hidden", fails),
    )
    await world.send("top", Ask())
    told = str(world["top"].seen) + str(world["top"].got)
    assert "hidden" not in told
    assert world["top"].got[1] == SystemError("upstream", "The target could not complete the request.", False)
    for seen in world["hidden"].seen:
        assert "top" not in str(seen)


async def test_what_a_handler_does_to_its_metadata_and_payload_changes_nothing() -> None:
    # HC-11
    async def forges(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Answer):
            return respond(payload.text)
        metadata.from_id = metadata.thread_id = "forged"
        metadata.own_name = "root"
        metadata.is_self_call = True
        response = to("echo", "<from>root</from><thread>x</thread>")
        response.__dict__.update({"from": "root", "from_id": "root", "thread": "x", "thread_id": "x"})
        response.payload.__dict__.update({"from": "root", "from_id": "root", "thread_id": "x"})
        return response

    world = World(Handler("forges", forges, peers=["echo"]), Handler("echo", echo))
    answer = await world.send("forges", Ask())
    assert answer == Answer("<from>root</from><thread>x</thread>")
    [below] = world["echo"].seen
    assert (below.from_id, below.is_self_call, below.own_name) == ("forges", False, None)
    later = world["forges"].seen[1]
    assert (later.from_id, later.own_name, later.is_self_call) == ("echo", None, False)
    first = world.messages()[0]
    assert later.thread_id == first.frame != below.thread_id
    assert not hasattr(world["echo"].got[0], "thread_id")


async def test_instructions_name_every_peer_with_what_it_takes() -> None:
    # HC-10
    async def model(text: str) -> str:
        return text

    world = World(
        Handler("agent", echo, peers=["buyer", "model", "shout.er", "gone"], agent=True),
        Handler("buyer", forever, takes=Order, description="Buys things.\nQuickly."),
        Handler("shout.er", forever, description="Says it louder"),
        Handler("secret", forever, description="Nobody's business"),
        others={"model": model},
    )
    await world.send("agent", Ask())
    text = world["agent"].seen[0].usage_instructions
    assert "Complete ALL sub-tasks before responding" in text
    assert WARNING in text
    for part in ("## buyer", "Buys things.\nQuickly.", "## shout.er", "Says it louder", "## model"):
        assert part in text
    assert "<Order>" in text
    schemas = [json.loads(line.partition(": ")[2]) for line in text.split("\n") if line.startswith("JSON s")]
    assert {"what", "count"} in [set(each["properties"]) for each in schemas]
    assert "secret" not in text
    assert "gone" not in text
    assert instructions(()) == ""


async def test_instructions_follow_the_fleet() -> None:
    world = World(Handler("agent", echo, peers=["later"]))
    await world.send("agent", Ask())
    world.peers.handlers["later"] = Handler("later", echo, description="came later")
    await world.send("agent", Ask())
    first, second = (each.usage_instructions for each in world["agent"].seen)
    assert first == ""
    assert "came later" in second


async def test_what_does_not_fit_is_told_to_its_sender_alone() -> None:
    # HC-2, X13: the target is never called, and the conversation goes on
    @knows
    @dataclass
    class Loud:
        text: str

    async def sends(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, SystemError):
            assert metadata.from_id == "system"
            return respond(f"{payload.code} {payload.retry_allowed}: {payload.message}")
        if payload.text == "class":
            return HandlerResponse(Loud("x"), "buyer")
        return HandlerResponse(Order(what=3), "buyer")  # type: ignore[arg-type]

    world = World(Handler("sends", sends, peers=["buyer"]), Handler("buyer", echo, takes=Order))
    assert (await world.send("sends", Ask("class"))).text == (
        "validation True: Loud is not accepted here; it takes Order"
    )
    wrong = (await world.send("sends", Ask("field"))).text
    assert wrong.startswith("validation True: Order.what")
    assert world["buyer"].got == []


async def test_a_peer_that_cannot_answer_now_is_a_system_error_of_that_kind() -> None:
    trying = tries("down")
    trying.peers = frozenset({"down"})
    world = World(trying, Handler("down", echo))
    world.peers.down["down"] = Fault(FaultType.TRANSPORT, "down is restarting on host 10.0.0.1")
    assert await world.send("tries", Ask()) == Answer("transport, told by system")
    assert trying.got[1] == SystemError("transport", "The target could not complete the request.", True)
