"""What fast-agent's agents use of their aggregator, in whose place Pallas puts ``Downstreams``.

The uses are read from the source of fast-agent: one that Pallas does not know fails here, by name and line.
"""

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import fast_agent
import pytest
from fast_agent.agents import mcp_agent
from fast_agent.mcp import mcp_aggregator

from pallas.executors.fastagent import downstreams_seam
from pallas.executors.fastagent.downstreams_seam import Downstreams

ROOT: Final = Path(fast_agent.__file__).parent
FILES: Final = (
    *sorted((ROOT / "agents").rglob("*.py")),
    ROOT / "core" / "instruction_refresh.py",
    ROOT / "core" / "managed_runtime.py",
    ROOT / "tools" / "codex_web_search.py",
)
NAMES: Final = ("aggregator", "_aggregator")
NOT_OURS: Final[frozenset[str]] = frozenset()
"""Members that only fast-agent's terminal or its ACP server reach in these files: none now."""
ATTRIBUTES: Final = frozenset({"initialized", "permission_handler"})
"""Members that are set on an instance, and no methods."""

type Place = tuple[str, ast.AST]


def is_aggregator(node: ast.AST) -> bool:
    """Whether an expression is an aggregator by its name: ``aggregator``, ``x.aggregator``."""
    return (isinstance(node, ast.Attribute) and node.attr in NAMES) or (
        isinstance(node, ast.Name) and node.id in NAMES
    )


def nodes() -> Iterator[Place]:
    """Every node of the files, with where it stands."""
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            yield f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", node


@pytest.fixture(scope="module")
def uses() -> dict[str, list[str]]:
    """Where each member of an aggregator is used."""
    found: dict[str, list[str]] = defaultdict(list)
    for place, node in nodes():
        if isinstance(node, ast.Attribute) and is_aggregator(node.value):
            found[node.attr].append(place)
    return dict(found)


def keywords(call: ast.Call) -> list[str]:
    """The names by which a call gives its arguments, without ``**``."""
    return [str(each.arg) for each in call.keywords if each.arg]


def original() -> Any:
    """fast-agent's class, which its module of agents had before the seam was installed."""
    return mcp_aggregator.MCPAggregator


@pytest.mark.slow
def test_agents_make_their_aggregator_in_one_place_by_a_name_of_the_module() -> None:
    made = [
        (place, node)
        for place, node in nodes()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name | ast.Attribute)
        and ast.unparse(node.func).endswith("MCPAggregator")
    ]
    assert [place.partition(":")[0] for place, _ in made] == [str(Path("agents") / "mcp_agent.py")]
    ((_, call),) = made
    assert isinstance(call.func, ast.Name)  # looked up in the module each time
    assert call.args == []
    named = keywords(call)
    assert sorted(named) == ["config", "connection_persistence", "context", "name", "server_names"]
    inspect.signature(Downstreams).bind(**dict.fromkeys(named))
    inspect.signature(original()).bind(**dict.fromkeys(named))
    # What the agent was given besides: ours takes whatever it is.
    kinds = {each.kind for each in inspect.signature(Downstreams).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD in kinds


def test_the_seam_puts_ours_where_agents_look_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_agent, "MCPAggregator", original(), raising=True)
    downstreams_seam.install()
    downstreams_seam.install()
    assert vars(mcp_agent)["MCPAggregator"] is Downstreams
    assert original() is not Downstreams


def test_every_member_that_is_used_is_there(uses: dict[str, list[str]]) -> None:
    assert len(uses) > 20  # the search finds them at all
    missing = {
        name: places
        for name, places in uses.items()
        if name not in NOT_OURS and name not in ATTRIBUTES and not hasattr(Downstreams, name)
    }
    assert missing == {}, "fast-agent uses members of its aggregator that Downstreams has not"
    unused = sorted((NOT_OURS | ATTRIBUTES) - uses.keys())
    assert unused == [], "fast-agent does not use these any more"


def test_what_is_set_on_an_instance_is_there() -> None:
    made = Downstreams([])
    assert made.initialized is False
    assert hasattr(made.permission_handler, "check_permission")
    made.initialized = True
    assert made.initialized is True
    assert mcp_aggregator.MCPAggregator([], context=None).initialized is False


@pytest.mark.slow
def test_an_aggregator_is_not_reached_by_a_way_that_this_does_not_see() -> None:
    """``getattr`` with a name, and an aggregator under another name: both would pass by the search."""
    found = []
    for place, node in nodes():
        match node:
            case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr" as asked), args=[of, *_]):
                if is_aggregator(of):
                    found.append(f"{place} {asked}")
            case ast.Assign(targets=targets, value=value) if is_aggregator(value):
                found += [f"{place} {ast.unparse(each)}" for each in targets if not is_aggregator(each)]
            case ast.NamedExpr(target=target, value=value) if is_aggregator(value):
                found.append(f"{place} {target.id}")
            case _:
                pass
    assert found == []


@pytest.mark.slow
def test_every_call_fits_the_method_of_ours(uses: dict[str, list[str]]) -> None:
    wrong, seen = [], set()
    for place, node in nodes():
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if not is_aggregator(node.func.value) or node.func.attr in NOT_OURS:
            continue
        method = getattr(Downstreams, node.func.attr)
        seen.add(node.func.attr)
        given = dict.fromkeys(keywords(node))
        try:
            inspect.signature(method).bind(None, *node.args, **given)
        except TypeError as error:
            wrong.append(f"{place} {ast.unparse(node)}: {error}")
    assert wrong == []
    assert seen <= uses.keys()


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name, member in vars(Downstreams).items()
        if not name.startswith("_") and hasattr(mcp_aggregator.MCPAggregator, name) and callable(member)
    ),
)
def test_a_method_waits_where_fast_agents_waits(name: str) -> None:
    theirs, ours = getattr(original(), name), getattr(Downstreams, name)
    assert inspect.iscoroutinefunction(ours) is inspect.iscoroutinefunction(theirs)


def test_what_agents_get_of_it_has_the_fields_that_they_read() -> None:
    tool = mcp_aggregator.NamespacedTool
    assert {"tool", "server_name", "namespaced_tool_name"} <= set(inspect.signature(tool).parameters)
    snapshot = inspect.signature(mcp_aggregator.MCPToolCatalog.snapshot).parameters
    assert list(snapshot) == ["by_namespaced_name", "by_server", "server_names"]
    assert list(inspect.signature(mcp_aggregator.ToolNameResolution).parameters) == [
        "server_name",
        "local_name",
    ]
    status = inspect.signature(mcp_aggregator.ServerStatus).parameters
    assert {"server_name", "transport", "is_connected", "protocol_version"} <= set(status)
    assert mcp_aggregator.MCPAttachOptions().startup_timeout_seconds >= 0
