"""The table of operations: each is declared once, and everything else is made from that."""

import inspect
from typing import Any

import pytest

from pallas.fleet.local_port import LocalPort
from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import (
    FleetPort,
    Operation,
    Page,
    RunningFleet,
    TaskRecord,
    ThreadRecord,
    TokenScope,
    operation,
    operations_of,
)
from pallas_tui.placeholder_fleet import PlaceholderFleet
from pallas_tui.remote.remote_fleet import RemoteFleet

TABLE = {each.name: each for each in operations_of(FleetPort)}
PICTURE = {"attachment", "can_control", "listen", "snapshot", "since"}
"""What a port always has at hand: it is followed as a stream rather than asked for."""


def public(port: type) -> set[str]:
    return {name for name in dir(port) if not name.startswith("_")}


def test_every_public_method_of_a_port_is_in_the_table() -> None:
    assert public(FleetPort) == set(TABLE) | PICTURE
    assert public(RunningFleet) == public(FleetPort) | {"start", "stop", "outlives"}
    for port in (LocalPort, ThreadedFleet, RemoteFleet, PlaceholderFleet):
        assert [each.name for each in operations_of(port)] == list(TABLE), port


def test_the_local_port_does_each_of_them_with_the_same_arguments() -> None:
    for name, entry in TABLE.items():
        method = vars(LocalPort)[name]
        assert inspect.iscoroutinefunction(method) is entry.waits, name
        declared, done = inspect.signature(entry.function), inspect.signature(method)
        assert [(each.name, each.default) for each in declared.parameters.values()] == [
            (each.name, each.default) for each in done.parameters.values()
        ], name


def test_the_ways_that_only_carry_them_name_none() -> None:
    for port in (ThreadedFleet, RemoteFleet, PlaceholderFleet):
        assert not set(TABLE) & set(vars(port)), port


def test_an_entry_is_made_of_the_signature() -> None:
    entry = TABLE["thread_messages"]
    assert (entry.http_method, entry.waits, entry.scope) == ("GET", True, TokenScope.TEXTS)
    assert [(each.name, each.wire_name, each.place, each.type) for each in entry.parameters] == [
        ("thread", "thread", "path", str),
        ("limit", "limit", "query", int),
        ("cursor", "cursor", "query", str),
        ("newest_first", "newest", "query", bool),
    ]
    assert TABLE["tasks"].result == Page[TaskRecord]
    assert not TABLE["cancel"].waits


def test_a_request_is_made_of_the_arguments_whatever_is_in_them() -> None:
    entry = TABLE["thread_messages"]
    given = entry.bind(("a/b?c #", 3), {"newest_first": True})
    assert entry.request(given) == ("/threads/a%2Fb%3Fc%20%23/messages?limit=3&cursor=&newest=1", None)
    entry = TABLE["rename_thread"]
    assert entry.request(entry.bind(("t",), {"title": "x"})) == ("/threads/t/rename", {"title": "x"})
    entry = TABLE["delete_thread"]
    assert entry.request(entry.bind(("t",), {})) == ("/threads/t", None)


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("cancel", ("r" * 100,), f"cancel run {'r' * 59}…"),
        ("control", ("vision", "stop"), "stop vision"),
        ("control_fleet", ("pause",), "pause the fleet"),
        ("rename_thread", ("0123456789abcdef", "x"), "rename thread 01234567…"),
        ("cancel_task", ("0123456789abcdef",), "cancel task 01234567…"),
        ("call_tool", ("a", "docs", "find", {}, "secret"), "call tool docs/find of a"),
        ("call_tool", ("a", "", "find", {"x": "{y}"}), "call tool find of a"),
    ],
)
def test_what_is_asked_for_is_told_without_a_handle_or_a_secret(
    name: str, given: tuple[Any, ...], says: str
) -> None:
    assert TABLE[name].describe(TABLE[name].bind(given, {})) == says


async def test_a_call_gets_to_the_port_with_all_arguments_by_name() -> None:
    carried: list[tuple[str, dict[str, Any]]] = []

    class Carrying(FleetPort):
        async def _call(self, operation: Operation, arguments: dict[str, Any]) -> Any:
            carried.append((operation.name, arguments))
            return "done"

        def _send(self, operation: Operation, arguments: dict[str, Any]) -> None:
            carried.append((operation.name, arguments))

        def snapshot(self) -> Any: ...

        def since(self, seq: int, limit: int = 0) -> Any: ...

        def listen(self, wake: Any) -> Any: ...

    port = Carrying()
    assert await port.threads(limit=3) == "done"  # type: ignore[comparison-overlap]
    port.cancel("r1")
    listed = {"agent": "", "limit": 3, "cursor": "", "search": "", "branches_of": ""}
    assert carried == [("threads", listed), ("cancel", {"run_id": "r1"})]
    with pytest.raises(TypeError):
        await port.rename_thread("only one")  # type: ignore[call-arg]


def test_what_changes_something_needs_the_full_token_and_no_get() -> None:
    for route, scope in (
        ("GET /x", TokenScope.FULL),
        ("POST /x", TokenScope.READ),
        ("DELETE /x", TokenScope.TEXTS),
    ):
        with pytest.raises(TypeError, match="GET"):

            @operation(route, scope=scope)
            async def wrong(self: Any) -> ThreadRecord: ...
