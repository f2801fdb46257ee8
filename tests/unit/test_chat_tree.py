"""The tree of tool calls: from progress messages to rows, with a clock that the test turns."""

import pytest

from pallas_tui.chat.call_outline import LIVE_ROWS, CallOutline, tree_details
from pallas_tui.chat.call_tree import MAX_CALLS, Node, Tree
from pallas_tui.chat.run_progress import parse


def tree_of(*messages: str, agent: str = "concierge", every: float = 1.0) -> Tree:
    tree = Tree(agent)
    for number, message in enumerate(messages):
        tree.hear(parse(message), number * every)
    return tree


def shape(node: Node) -> object:
    return [(f"{child.kind[0]}:{child.label}", child.state, shape(child)) for child in node.children]


DELEGATED = (
    "concierge step 1 (llm)",
    "concierge step 2 (tool)",
    "research/send_message: started",
    "research step 1 (llm)",
    "research step 2 (tool)",
    "docs/search: started",
    "vault/lookup: started",
    "docs/search: completed",
    "vault/lookup: failed",
    "research step 3 (llm)",
    "research » Found it.",
    "research/send_message: completed",
    "concierge step 3 (llm)",
)


def test_a_sub_agents_calls_stand_below_the_call_that_asked_it() -> None:
    # PI-25
    tree = tree_of(*DELEGATED)
    assert shape(tree.root) == [
        (
            "c:research/send_message",
            "ok",
            [
                (
                    "a:research",
                    "ok",
                    [("c:docs/search", "ok", []), ("c:vault/lookup", "error", [])],
                )
            ],
        )
    ]
    call = tree.root.children[0]
    assert call.seconds(99) == 9
    assert call.words == "Found it."
    assert (tree.calls, tree.agents, tree.failed) == (3, 1, 1)


AT_ONCE = (
    "concierge step 1 (llm)",
    "concierge step 2 (tool)",
    "research/send_message: started",
    "catalogue/send_message: started",
    "research step 1 (llm)",
    "catalogue step 1 (llm)",
    "research step 2 (tool)",
    "catalogue step 2 (tool)",
    "docs/search: started",
    "shop/orders_of: started",
    "shop/orders_of: completed",
    "catalogue step 3 (llm)",
    "docs/search: completed",
    "research step 3 (llm)",
    "research step 4 (tool)",
    "catalogue » Three orders.",
    "catalogue step 4 (llm)",
    "docs/read: started",
    "docs/read: completed",
)
HAVE = {"docs": {"research"}, "shop": {"catalogue"}, "research": {"concierge"}, "catalogue": {"concierge"}}


def test_agents_that_work_at_once_keep_their_own_calls() -> None:
    tree = Tree("concierge", lambda server: HAVE.get(server, set()))
    for number, message in enumerate(AT_ONCE):
        tree.hear(parse(message), number)
    below = {n.label: [c.label for c in n.children] for n in tree.root.walk() if n.kind == "agent"}
    assert below == {"research": ["docs/search", "docs/read"], "catalogue": ["shop/orders_of"]}
    assert [n.label for n in tree.root.children] == ["research/send_message", "catalogue/send_message"]


def test_where_nothing_is_known_of_servers_a_call_is_of_who_calls_tools_just_now() -> None:
    tree = Tree("concierge")
    for number, message in enumerate((*AT_ONCE[:7], "catalogue step 2 (llm)", "docs/search: started")):
        tree.hear(parse(message), number)
    (call,) = [node for node in tree.root.walk() if node.label == "docs/search"]
    assert call.parent is not None
    assert call.parent.label == "research"


def test_after_a_run_one_row_is_left_and_unfolding_shows_durations() -> None:
    # PI-25
    tree = tree_of(*DELEGATED)
    tree.close()
    outline = CallOutline(tree, folded=True)
    (row,) = outline.rows(50)
    assert (row.label, row.figures, row.open, row.depth) == (
        "research/send_message",
        "9.0 s · 2 tools",
        False,
        0,
    )
    assert outline.set_open(row.node, True)
    rows = outline.rows(50)
    assert [(row.depth, row.label, row.figures) for row in rows] == [
        (0, "research/send_message", "9.0 s · 2 tools"),
        (1, "docs/search", "2.0 s"),
        (1, "vault/lookup", "failed · 2.0 s"),
    ]
    assert outline.set_open(rows[0].node, False)
    assert [row.label for row in outline.rows(50)] == ["research/send_message"]
    assert not outline.set_open(rows[1].node, False)


def test_several_calls_fold_to_one_row_that_names_them() -> None:
    tree = tree_of(
        "concierge step 1 (tool)",
        "docs/search: started",
        "docs/search: completed",
        "docs/search: started",
        "docs/search: completed",
        "vault/lookup: started",
        "vault/lookup: failed",
    )
    (row,) = CallOutline(tree, folded=True).rows(99)
    assert row.label == "docs/search, vault/lookup"
    assert row.figures == "5.0 s · 3 tools · 1 failed"
    assert row.state == "error"


def test_a_running_call_counts_on_and_ends_with_its_message() -> None:
    tree = tree_of("concierge step 1 (tool)", "docs/search: started")
    outline = CallOutline(tree, folded=False)
    assert outline.rows(3.5)[0].figures == "2 s"
    assert outline.rows(4.5)[0].state == "running"
    tree.hear(parse("docs/search: completed"), 5.0)
    assert outline.rows(99)[0].figures == "4.0 s"


def test_two_agents_at_once_each_have_their_calls() -> None:
    tree = tree_of(
        "boss step 1 (tool)",
        "red/ask: started",
        "blue/ask: started",
        "blue step 1 (tool)",
        "echo/one: started",
        "red step 1 (tool)",
        "echo/two: started",
        "echo/one: completed",
        "blue/ask: completed",
        "echo/two: completed",
        "red/ask: completed",
        agent="boss",
    )
    assert shape(tree.root) == [
        ("c:red/ask", "ok", [("a:red", "ok", [("c:echo/two", "ok", [])])]),
        ("c:blue/ask", "ok", [("a:blue", "ok", [("c:echo/one", "ok", [])])]),
    ]


def test_a_sub_agent_that_is_asked_without_a_call_has_a_row_and_ends_with_the_next_step() -> None:
    tree = tree_of(
        "boss step 1 (llm)", "helper step 1 (tool)", "echo/x: started", "echo/x: completed", agent="boss"
    )
    assert shape(tree.root) == [("a:helper", "running", [("c:echo/x", "ok", [])])]
    tree.hear(parse("boss step 2 (llm)"), 9)
    assert shape(tree.root) == [("a:helper", "ok", [("c:echo/x", "ok", [])])]


def test_an_attached_agent_is_known_by_its_own_name() -> None:
    tree = tree_of("research step 1 (tool)", "docs/search: started", agent="research@example.org:80")
    assert shape(tree.root) == [("c:docs/search", "running", [])]


def test_the_oldest_of_several_calls_of_one_name_ends_first() -> None:
    tree = tree_of("a step 1 (tool)", "e/x: started", "e/x: started", "e/x: completed", agent="a")
    assert [(node.state, node.started) for node in tree.root.children] == [("ok", 1), ("running", 2)]


def test_an_end_without_a_beginning_has_no_duration() -> None:
    tree = tree_of("a step 1 (tool)", "e/x: failed", agent="a")
    (row,) = CallOutline(tree, folded=False).rows(9)
    assert (row.label, row.figures, row.state) == ("e/x", "failed", "error")


def test_what_never_ended_is_unknown_when_the_run_is_over() -> None:
    tree = tree_of("a step 1 (tool)", "e/x: started", agent="a")
    tree.close()
    (row,) = CallOutline(tree, folded=False).rows(9)
    assert (row.state, row.figures) == ("unknown", "no end reported")


def test_what_was_under_way_when_the_user_cancelled_is_cancelled() -> None:
    tree = tree_of("a step 1 (tool)", "e/x: started", "e/y: started", "e/y: completed", agent="a")
    tree.close("cancelled")
    outline = CallOutline(tree, folded=False)
    assert [(row.label, row.state) for row in outline.rows(9)] == [("e/x", "cancelled"), ("e/y", "ok")]
    assert outline.rows(9)[0].figures == "cancelled"
    assert CallOutline(tree, folded=True).rows(9)[0].state == "cancelled"


def test_a_flood_of_calls_is_counted_not_kept() -> None:
    tree = Tree("a")
    for _ in range(MAX_CALLS + 50):
        tree.hear(parse("e/x: started"), 1)
        tree.hear(parse("e/x: completed"), 2)
    assert tree.calls == MAX_CALLS + 50
    assert tree.left_out == 50
    rows = CallOutline(tree, folded=False).rows(3, live=True)
    assert len(rows) == LIVE_ROWS
    assert rows[-1].label == "50 more calls not kept"
    assert rows[0].label == f"{MAX_CALLS + 1 - LIVE_ROWS + 1} earlier calls"


def test_a_call_that_ends_takes_everything_below_it_along() -> None:
    tree = tree_of(
        "a step 1 (tool)",
        "b/ask: started",
        "b step 1 (tool)",
        "e/x: started",
        "b/ask: failed",
        "e/y: started",
        agent="a",
    )
    assert shape(tree.root) == [
        ("c:b/ask", "error", [("a:b", "ok", [("c:e/x", "unknown", [])])]),
        ("c:e/y", "running", []),
    ]


def test_the_story_is_the_whole_tree_in_lines() -> None:
    tree = tree_of(*DELEGATED)
    assert tree_details(tree, 99) == (
        "- research/send_message (9.0 s · 2 tools)\n"
        "  - agent research (8.0 s · 2 tools)\n"
        "    - docs/search (2.0 s)\n"
        "    - vault/lookup (failed · 2.0 s)"
    )


def test_a_name_of_several_lines_is_one_row() -> None:
    tree = tree_of("a step 1 (tool)", "evil\nserver/x: started", "evil\nserver/x: completed", agent="a")
    (row,) = CallOutline(tree, folded=False).rows(9)
    assert (row.label, row.state) == ("evil", "ok")


@pytest.mark.parametrize("message", ["", "x", "/: started", "a step one (llm)", "a » "])
def test_nothing_that_a_server_says_breaks_it(message: str) -> None:
    tree = tree_of(message, message)
    tree.close()
    assert CallOutline(tree, folded=True).rows(1) == []


def test_why_a_call_failed_is_below_it_whatever_is_known_first() -> None:
    tree = tree_of("docs/read: started", "docs/read: failed", "docs/read: started", agent="a")
    tree.explain("docs/read", "KeyError: 'name'")
    tree.explain("docs/read", "ValueError: no")  # of the call that has not reported its end yet
    tree.explain("docs/other", "TypeError: of no call that is known")
    tree.hear(parse("docs/read: failed"), 9.0)
    rows = CallOutline(tree, folded=False).rows(50)
    assert [(row.depth, row.label) for row in rows] == [
        (0, "docs/read"),
        (1, "KeyError: 'name'"),
        (0, "docs/read"),
        (1, "ValueError: no"),
    ]
    folded = CallOutline(tree, folded=True).rows(50)
    assert [row.label for row in folded] == ["docs/read", "ValueError: no"]
    assert "failed · 1.0 s): KeyError: 'name'" in tree_details(tree, 50)
