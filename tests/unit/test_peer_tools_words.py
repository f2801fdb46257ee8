"""What a model is told of its peers: names, descriptions, schemas, and what went wrong."""

import json
import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas.executors.fastagent.peer_tools import (
    fault_text,
    in_full,
    is_renamed,
    names_for,
    text_for,
    tool_of,
)
from pallas.messaging.messaging_port import PeerFacts
from pallas.model import Fault, FaultType
from pallas.payloads import PayloadFault, PayloadType, read_text

# What OpenAI, Anthropic and Google all take as the name of a function.
LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@dataclass
class Place:
    """Where it is."""

    street: str
    number: int | None = None


@dataclass
class Order:
    """Something to be brought."""

    what: str
    to: Place
    over: list[Place] = field(default_factory=list)
    note: str | None = None


def test_dots_and_long_names_become_names_that_every_provider_takes() -> None:
    long = "a" * 100
    found = names_for(["calculator.add", "plain", "7.zip", long, long[:-1] + "b", "a__b"], [])
    assert found["calculator.add"] == "calculator_add"
    assert found["plain"] == "plain"
    assert found["7.zip"] == "agent_7_zip"
    assert found["a__b"] == "a_b"  # two underscores stand between a server and its tool
    assert len({found[long], found[long[:-1] + "b"]}) == 2
    assert all(LEGAL.fullmatch(name) for name in found.values())


def test_a_name_that_another_tool_has_gets_a_number_whatever_the_case() -> None:
    found = names_for(["adder", "a.b", "a_b"], ["Adder", "other"])
    assert found == {"adder": "adder_2", "a_b": "a_b", "a.b": "a_b_2"}
    assert is_renamed("adder", "adder_2")
    assert not is_renamed("a.b", "a_b")


@pytest.mark.slow
@given(
    st.lists(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,99}", fullmatch=True), max_size=12, unique=True),
    st.lists(st.from_regex(r"[a-zA-Z_]{1,20}", fullmatch=True), max_size=5),
)
def test_every_peer_has_a_legal_name_of_its_own(peers: list[str], taken: list[str]) -> None:
    found = names_for(peers, taken)
    folded = [name.casefold() for name in found.values()]
    assert set(found) == set(peers)
    assert len(set(folded)) == len(folded)
    assert not set(folded) & {name.casefold() for name in taken}
    assert all(LEGAL.fullmatch(name) and "__" not in name for name in found.values())


def test_a_typed_handler_is_shown_with_the_schema_of_its_class_and_an_example() -> None:
    kind = PayloadType.of(Order)
    tool = tool_of(PeerFacts("carrier", "Brings things.", kind))
    assert (tool.peer, tool.says, tool.typed) == ("carrier", "Order", True)
    assert tool.description.startswith("Brings things. (Agent carrier.) It takes one Order. Example: ")
    example = json.loads(tool.description.partition("Example: ")[2])
    payload, form = read_text(kind, json.dumps(example))
    assert (payload.name, form) == ("Order", "json")
    place = tool.schema["properties"]["to"]
    assert place["properties"]["street"]["type"] == "string"
    assert tool.schema["properties"]["over"]["items"]["properties"] == place["properties"]
    assert "$ref" not in json.dumps(tool.schema)
    assert text_for(tool, example) is not None
    assert read_text(kind, str(text_for(tool, example)))[0].xml == payload.xml


def test_any_other_agent_takes_a_message_and_a_call_without_one_is_not_sent() -> None:
    tool = tool_of(PeerFacts("writer", ""))
    assert (tool.says, tool.typed, tool.schema["required"]) == ("send_message", False, ["message"])
    assert "Agent writer" in tool.description
    assert text_for(tool, {"message": "write"}) == "write"
    for wrong in ({}, {"message": " "}, {"message": 3}):
        assert text_for(tool, wrong) is None


def test_a_description_stays_as_short_as_providers_want_it() -> None:
    tool = tool_of(PeerFacts("carrier", "Brings\nthings. " * 200, PayloadType.of(Order)))
    assert len(tool.description) <= 1_000
    assert "\n" not in tool.description


def test_a_schema_that_comes_back_to_itself_keeps_its_references() -> None:
    schema = {
        "$schema": "x",
        "properties": {"tree": {"$ref": "#/$defs/Tree"}, "leaf": {"$ref": "#/$defs/Leaf", "default": None}},
        "$defs": {
            "Tree": {"properties": {"below": {"items": {"$ref": "#/$defs/Tree"}}}},
            "Leaf": {"type": "string"},
        },
    }
    made = in_full(schema)
    assert made["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert made["properties"]["leaf"] == {"type": "string", "default": None}
    assert made["$defs"] == schema["$defs"]
    assert "$schema" not in made


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            PayloadFault('Add.a is "x"; expected a whole number, such as 42', field="a"),
            'Error (PROTOCOL, validation): Add.a is "x"; expected a whole number, such as 42. '
            "Correct the arguments and call it again.",
        ),
        (
            Fault(FaultType.TRANSPORT, "writer is starting"),
            "Error (TRANSPORT): writer is starting. Trying again later may help.",
        ),
        (Fault(FaultType.UPSTREAM, "it failed."), "Error (UPSTREAM): it failed."),
        (
            Fault(FaultType.TIMEOUT, "too long", retryable=False, data={"partial": "so far\x1b[2J"}),
            "Error (TIMEOUT): too long.\n\nIt had written by then:\nso far",
        ),
    ],
)
def test_a_fault_says_its_kind_what_was_wrong_and_whether_to_try_again(fault: Fault, said: str) -> None:
    assert fault_text(fault).startswith(said)
    assert "\x1b" not in fault_text(fault)
