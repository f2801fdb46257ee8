"""What a server offers: all pages of its lists, with an end, and what of them could not be used."""

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from mcp import MCPError
from mcp_types import (
    METHOD_NOT_FOUND,
    Implementation,
    ListToolsResult,
    Prompt,
    Resource,
    ResourceTemplate,
    ServerCapabilities,
    Tool,
)

from pallas.downstreams import offer as module
from pallas.downstreams.offer import (
    Offer,
    all_pages,
    each_name_once,
    offer_of,
    resources_of,
    templates_of,
)
from pallas.downstreams.result_fit import LeftOut

SCHEMA = {"type": "object"}


class Pages:
    """Answers a list by the cursor that is asked for."""

    def __init__(self, **pages: tuple[list[str], str | None]) -> None:
        self.pages = pages
        self.asked: list[str | None] = []

    async def __call__(self, *, cursor: str | None = None) -> ListToolsResult:
        self.asked.append(cursor)
        names, following = self.pages[cursor or "first"]
        return page(names, following)


def page(names: list[str], following: str | None) -> ListToolsResult:
    """One page."""
    tools = [Tool(name=name, input_schema=SCHEMA) for name in names]
    return ListToolsResult(tools=tools, next_cursor=following)


async def names_of(fetch: Any) -> tuple[list[str], list[LeftOut]]:
    """The names of all pages, and the findings."""
    found: list[LeftOut] = []
    return [each.name for each in await all_pages(fetch, "tools", found)], found


async def test_all_pages_are_asked_for_in_order() -> None:
    pages = Pages(first=(["a", "b"], "2"), **{"2": (["c"], "3"), "3": (["d"], None)})
    assert await names_of(pages) == (["a", "b", "c", "d"], [])
    assert pages.asked == [None, "2", "3"]


def test_of_several_tools_of_one_name_the_first_is_used() -> None:
    one, two, other = (Tool(name=name, input_schema=SCHEMA) for name in ("a", "a", "b"))
    made = each_name_once(Offer(tools=(one, other, two)))
    assert list(map(id, made.tools)) == [id(one), id(other)]
    assert list(map(str, made.left_out)) == ["tool a: another tool before it has this name"]
    assert each_name_once(sound := Offer(tools=(one, other))) is sound


async def test_an_empty_page_in_between_is_not_the_end() -> None:
    assert await names_of(Pages(first=(["a"], "2"), **{"2": ([], "3"), "3": (["b"], None)})) == (
        ["a", "b"],
        [],
    )


async def test_a_cursor_that_is_repeated_is_the_end_and_a_finding() -> None:
    pages = Pages(first=(["a"], "2"), **{"2": (["b"], "2")})
    names, (finding,) = await names_of(pages)
    assert names == ["a", "b"]
    assert str(finding) == (
        "result tools: its pages do not end: a cursor is repeated; what arrived before is used"
    )
    assert pages.asked == [None, "2"]


async def test_cursors_that_go_in_a_circle_end_as_well() -> None:
    pages = Pages(first=(["a"], "2"), **{"2": (["b"], "3"), "3": (["c"], "2")})
    names, findings = await names_of(pages)
    assert (names, len(findings), pages.asked) == (["a", "b", "c"], 1, [None, "2", "3"])


async def test_an_empty_cursor_that_gives_the_first_page_again_is_the_end_and_no_finding() -> None:
    pages = Pages(first=(["a"], ""))
    assert await names_of(pages) == (["a"], [])
    assert pages.asked == [None, ""]


async def test_an_empty_cursor_that_gives_more_is_a_cursor() -> None:
    async def fetch(*, cursor: str | None = None) -> ListToolsResult:
        return page(["b"], None) if cursor == "" else page(["a"], "")

    assert await names_of(fetch) == (["a", "b"], [])


@pytest.mark.parametrize(
    ("limit", "most", "used", "words"),
    [("MAX_PAGES", 5, 5, "5 pages"), ("MAX_ITEMS", 5, 5, "5 items"), ("MAX_SIZE", 100, 2, "100 characters")],
)
async def test_pages_without_an_end_are_bounded(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int, used: int, words: str
) -> None:
    monkeypatch.setattr(module, limit, most)
    numbers = count()

    async def fetch(*, cursor: str | None = None) -> ListToolsResult:
        number = next(numbers)
        return page([f"t{number}"], f"c{number}")

    found, (finding,) = await names_of(fetch)
    assert found == [f"t{number}" for number in range(used)]
    assert str(finding) == f"result tools: it has more than {words}; only the first {used} tools are used"
    assert next(numbers) <= 6


async def test_what_is_wrong_with_a_list_stands_before_what_is_wrong_with_its_items(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_ITEMS", 1)
    found = [LeftOut("tool", "odd", "it has no name")]
    await all_pages(Pages(first=(["a", "b"], None)), "tools", found)
    assert [each.kind for each in found] == ["result", "tool"] and not found[0].part


def client(**given: Any) -> Any:
    """A live client; a list that is an error is refused with it, one that is absent fails the test."""
    capabilities = dict.fromkeys(("tools", "prompts", "resources")) | given.pop("can", {})

    def listing(value: Any) -> Any:
        async def fetch(*, cursor: str | None = None) -> Any:
            if isinstance(value, Exception):
                raise value
            return value

        return fetch

    return SimpleNamespace(
        server_capabilities=ServerCapabilities.model_validate(capabilities),
        server_info=Implementation(name="Shop", version="2.5"),
        instructions="Be kind.",
        protocol_version="2025-11-25",
        **{f"list_{name}": listing(value) for name, value in given.items()},
    )


def error(code: int, text: str = "no") -> MCPError:
    """What the SDK raises."""
    return MCPError(code=code, message=text)


TOOLS = page(["a"], None)
PROMPTS = SimpleNamespace(prompts=[Prompt(name="p")], next_cursor=None)


async def test_an_offer_is_all_that_a_server_lists() -> None:
    found = await offer_of(client(can={"tools": {}, "prompts": {}}, tools=TOOLS, prompts=PROMPTS), [])
    assert [each.name for each in (*found.tools, *found.prompts)] == ["a", "p"]
    assert (found.instructions, found.version, found.left_out) == ("Be kind.", "2025-11-25", ())
    assert (found.name, found.release, found.capabilities) == ("Shop", "2.5", {"tools": {}, "prompts": {}})


async def test_prompts_are_not_asked_for_where_none_are_announced_tools_always() -> None:
    found = await offer_of(client(tools=TOOLS), [])
    assert ([each.name for each in found.tools], found.prompts) == (["a"], ())


async def test_a_server_that_announces_no_tools_may_have_no_such_method() -> None:
    found = await offer_of(client(tools=error(METHOD_NOT_FOUND)), [])
    assert (found.tools, found.left_out) == ((), ())


async def test_a_list_that_was_announced_and_is_not_there_is_a_finding() -> None:
    found = await offer_of(client(can={"tools": {}}, tools=error(METHOD_NOT_FOUND)), [])
    assert found.tools == ()
    assert [str(each) for each in found.left_out] == ["tool all tools: tools/list failed: no"]


async def test_prompts_that_fail_cost_the_prompts_alone() -> None:
    refused = error(-32603, "it broke\x1b[31m\n" + "x" * 1_000)
    found = await offer_of(client(can={"tools": {}, "prompts": {}}, tools=TOOLS, prompts=refused), [])
    assert [each.name for each in found.tools] == ["a"]
    (finding,) = found.left_out
    assert "it broke" in finding.why and "\x1b" not in finding.why and len(finding.why) < 300


async def test_tools_that_fail_fail_the_listing() -> None:
    with pytest.raises(MCPError, match="overloaded"):
        await offer_of(client(can={"tools": {}}, tools=error(-32603, "overloaded")), [])


async def test_what_was_found_before_is_part_of_the_offer() -> None:
    before = LeftOut("server", "", "its version is odd")
    assert (await offer_of(client(tools=TOOLS), [before])).left_out == (before,)


async def test_resources_and_templates_are_listed_by_their_addresses() -> None:
    twice = [Resource(uri="a:1", name="x"), Resource(uri="a:2", name="x")]
    resources = SimpleNamespace(resources=twice, next_cursor=None)
    assert [each.uri for each in await resources_of(client(resources=resources))] == ["a:1", "a:2"]
    one = ResourceTemplate(name="t", uri_template="a:{x}")
    templates = SimpleNamespace(resource_templates=[one], next_cursor=None)
    assert await templates_of(client(resource_templates=templates)) == (one,)
