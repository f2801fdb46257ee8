"""Registry URLs, documents, and fetching them."""

from typing import Any

import pytest
from support.registries import entry

from pallas.model import Fault, FaultType
from pallas.surfaces import registry
from pallas_tui.instances.registry_address import WELL_KNOWN, document_url, label_of
from pallas_tui.instances.registry_document import MAX_AGENTS, read_document

HOSTILE = "\x1b]52;c;cm0=\x07[@click=app.quit]x[/] \u202egnp.exe\x1b[31m"


def read(*entries: Any) -> Any:
    return read_document({"servers": list(entries)}, "http://here")


def test_the_well_known_path_is_the_one_that_fleets_serve() -> None:
    assert WELL_KNOWN == registry.WELL_KNOWN


@pytest.mark.parametrize(
    ("typed", "url", "label"),
    [
        ("http://puck.incus:23030", f"http://puck.incus:23030{WELL_KNOWN}", "puck.incus:23030"),
        ("  http://Puck.incus:23030/ ", f"http://puck.incus:23030{WELL_KNOWN}", "puck.incus:23030"),
        (f"http://h:1{WELL_KNOWN}", f"http://h:1{WELL_KNOWN}", "h:1"),
        ("http://h:1/v0.1/servers", "http://h:1/v0.1/servers", "h:1/v0.1/servers"),
        ("https://h/fleets/a", f"https://h/fleets/a{WELL_KNOWN}", "https://h/fleets/a"),
        ("http://[::1]:24200", f"http://[::1]:24200{WELL_KNOWN}", "[::1]:24200"),
    ],
)
def test_what_is_typed_becomes_the_url_of_a_document(typed: str, url: str, label: str) -> None:
    # PI-14
    assert document_url(typed) == url
    assert label_of(url) == label


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("", "is empty; type the URL"),
        ("puck:23030", "http://puck:23030"),
        ("ftp://puck:1", "must begin with http:// or https://"),
        ("http://", "host or port is missing"),
        ("http://puck:0", "host or port is missing"),
        ("http://puck:99999", "cannot be read"),
        ("http://[::1", "cannot be read"),
        ("http://user:s3cret@puck:1", "leave out the user name and password"),
        ("http://puck:1/?token=s3cret", "leave out what begins with"),
        ("http://puck:1/#s3cret", "leave out what begins with"),
        ("http://pu ck:1", "blanks"),
        ("http://puck\u202e:1", "cannot be shown"),
        ("http://" + "x" * 3000, "2000 are allowed"),
    ],
)
def test_a_bad_url_is_refused_with_how_to_write_it_and_without_its_secrets(typed: str, told: str) -> None:
    with pytest.raises(Fault, match="Registry URL") as failed:
        document_url(typed)
    assert told in failed.value.message
    assert failed.value.type is FaultType.CONFIG
    assert "s3cret" not in failed.value.message
    assert "\u202e" not in failed.value.message


def test_an_entry_becomes_an_agent_with_its_id_title_and_first_icon() -> None:
    # PI-6
    icons = [{"src": "/icons/research.svg", "sizes": "any"}, {"src": "https://x/other.svg"}]
    listing = read(
        entry(
            "ca.helu.ouranos/pallas-research",
            title="Research Agent",
            description="Web search",
            version="1.0.0",
            icons=icons,
            capabilities={"model": "qwen3", "vision": True, "context_window": 200000, "unknown": 1},
        ),
        entry("a/b/plain"),
        entry("bare", icons=[{"src": "https://x/y.png"}], capabilities={"context_window": True}),
    )
    assert listing.skipped == ()
    research, plain, bare = listing.agents
    assert (research.id, research.title, research.icon) == (
        "pallas-research", "Research Agent", "/icons/research.svg",
    )  # fmt: skip
    assert (research.model, research.vision, research.context_window) == ("qwen3", True, 200000)
    assert research.max_output_tokens is None
    assert (plain.id, plain.title, plain.icon, plain.vision) == ("plain", "a/b/plain", "", None)
    assert (bare.id, bare.icon, bare.context_window) == ("bare", "https://x/y.png", None)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (3, "no server object"),
        ({"server": []}, "no server object"),
        (entry(""), "name is missing"),
        (entry("x", name=7), "name is missing"),
        (entry("ns/"), "leaves nothing for an id"),
        (entry("ns/x", remotes=[]), "(ns/x): it has no remote of type streamable-http"),
        (entry("ns/x", remotes=[{"type": "sse", "url": "http://h/sse"}]), "no remote of type"),
        (entry("ns/x", "file:///etc/passwd"), "not usable"),
        (entry("ns/x", "http://u:p@h/mcp"), "not usable"),
        (entry("ns/x", remotes=[{"type": "streamable-http"}]), "missing or not usable"),
        (entry("other/good"), "same id good"),
    ],
)
def test_a_malformed_entry_is_skipped_with_its_reason_and_the_rest_is_kept(bad: Any, reason: str) -> None:
    # PI-6
    listing = read(entry("ns/good"), bad, entry("ns/last"))
    assert [agent.id for agent in listing.agents] == ["good", "last"]
    assert len(listing.skipped) == 1
    assert listing.skipped[0].startswith("entry 2")
    assert reason in listing.skipped[0]


def test_there_is_an_end_to_the_agents_and_to_the_reasons() -> None:
    listing = read(*(entry(f"ns/a{number}") for number in range(MAX_AGENTS + 100)))
    assert len(listing.agents) == MAX_AGENTS
    assert len(listing.skipped) == 21
    assert listing.skipped[-1] == "and 80 more"


def test_nothing_of_a_document_can_drive_a_terminal() -> None:
    listing = read(
        entry(
            f"ns/{HOSTILE}",
            title=HOSTILE,
            description=f"first\n{HOSTILE}",
            version=HOSTILE,
            icons=[{"src": HOSTILE}],
            capabilities={"model": HOSTILE},
        ),
        entry(f"x/{HOSTILE}", remotes=[]),
    )
    agent = listing.agents[0]
    texts = (agent.id, agent.name, agent.title, agent.description, agent.icon, agent.version, agent.model)
    for text in (*texts, *listing.skipped):
        assert not {"\x1b", "\x07", "\u202e", "\n"} & set(text), text
    assert "␛]52" in agent.title


@pytest.mark.parametrize("document", [None, [], {"servers": {}}, {"agents": []}])
def test_json_that_is_no_document_is_told_as_that(document: Any) -> None:
    with pytest.raises(Fault, match="not a registry's document") as failed:
        read_document(document, "http://here")
    assert "http://here" in failed.value.message
