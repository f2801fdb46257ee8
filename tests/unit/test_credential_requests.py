from collections.abc import Iterable
from dataclasses import replace

import pytest
from support.fake_fleet import NOON, desk

from pallas.model import (
    AuthHop,
    Downstream,
    Event,
    QuestionAnswered,
    QuestionAsked,
    RunFinished,
    RunStarted,
    ToolEvent,
)
from pallas_tui.frame import FleetFrame
from pallas_tui.runs import credential_requests as state
from pallas_tui.runs.credential_line import CredentialLine
from pallas_tui.runs.credential_requests import CredentialRequests, fits
from pallas_tui.text import UNICODE, width_of
from pallas_tui.widgets.credentials.credential_view import credential_line, expiry, header, request_details

ALICE, BOB, VAULT = "a11ce" + "0" * 19, "b0b" + "0" * 21, "ca11ab1e" + "0" * 16


def started(run: str = "r1", agent: str = "concierge", at: float = NOON, **more: str) -> RunStarted:
    return RunStarted(run_id=run, agent=agent, at=at, **more)  # type: ignore[arg-type]


def hop(run: str = "r1", to: str = "vault", at: float = NOON + 1, **more: object) -> AuthHop:
    fields = {"agent": "concierge", "source": "forwarded", "fingerprint": ALICE, "status": 200, **more}
    return AuthHop(**{"method": "tools/call", "run_id": run, "downstream": to, "at": at, **fields})  # type: ignore[arg-type]


def call(run: str, span: str, server: str, agent: str = "concierge") -> ToolEvent:
    return ToolEvent(
        run_id=run, agent=agent, at=NOON, server=server, tool="x", phase="started", call_id=span, span_id=span
    )


def ended(run: str = "r1", agent: str = "concierge", at: float = NOON + 3) -> RunFinished:
    return RunFinished(run_id=run, agent=agent, at=at, outcome="ok", seconds=3.0)


def requests(*events: Event) -> CredentialRequests:
    made = CredentialRequests()
    made.absorb(FleetFrame(desk(), events, NOON))
    return made


def shape(lines: Iterable[CredentialLine]) -> list[str]:
    return [f"{'. ' * line.depth}{line.sender} > {line.to} {line.source}" for line in lines]


def odd(*events: Event) -> list[str]:
    return [reason for line in requests(*events).lines() for reason in line.findings]


def test_a_run_and_its_hops_are_lines() -> None:
    made = requests(
        started(caller="curl", principal=ALICE),
        hop(audience=("api://vault",), expires_at=NOON + 60),
        hop(to="docs", source="none", fingerprint=""),
        ended(),
    )
    first, second, third = made.lines()
    assert shape(made.lines()) == [
        "curl > concierge caller",
        ". concierge > vault forwarded",
        ". concierge > docs none",
    ]
    assert (first.answer, first.at, first.fingerprint) == ("ok", NOON, ALICE)
    # It is the same key, so what the other hop tells of it holds.
    assert (first.audience, first.expires_at) == (("api://vault",), NOON + 60)
    assert (second.answer, second.method) == ("200", "tools/call")
    assert third.answer == "200"
    assert made.requests == 3
    assert not any(line.findings for line in made.lines())


def test_an_anonymous_run_that_still_goes_on() -> None:
    (line,) = requests(started()).lines()
    assert (line.sender, line.source, line.answer, line.expires_at) == ("a client", "none", "running", None)


def test_the_same_again_is_counted() -> None:
    made = requests(started(principal=ALICE), *[hop(at=NOON + n) for n in range(5)], hop(status=500))
    assert [(line.times, line.answer) for line in made.lines()] == [(1, "running"), (5, "200"), (1, "500")]


def test_a_run_that_another_agent_asked_for_stands_below_its_hop() -> None:
    made = requests(
        started(caller="curl", principal=ALICE, span_id="s1"),
        hop(to="docs"),
        call("r1", "c1", "research"),
        started("r2", "research", caller="concierge", principal=ALICE, parent_span="c1"),
        hop("r2", "papers", agent="research"),
        started("other", "vision"),
        hop(to="research"),
        ended("r2", "research"),
    )
    assert shape(made.lines()) == [
        "curl > concierge caller",
        ". concierge > docs forwarded",
        ". concierge > research forwarded",
        ". . concierge > research caller",
        ". . . research > papers forwarded",
        "a client > vision none",
    ]
    assert [line.runs for line in made.lines()][3] == ("r2", "r1")
    assert not any(line.findings for line in made.lines())


def test_before_the_answer_is_there_it_stands_below_the_run() -> None:
    made = requests(
        started(span_id="s1"),
        call("r1", "c1", "research"),
        started("r2", "research", parent_span="c1"),
        started("r3", "vision", parent_span="s1"),
    )
    assert shape(made.lines()) == [
        "a client > concierge none",
        ". concierge > research none",
        ". concierge > vision none",
    ]


def test_without_a_known_asker_it_stands_by_itself() -> None:
    made = requests(started("r2", "research", parent_span="never seen"), started("r3", parent_span=""))
    assert [line.depth for line in made.lines()] == [0, 0]


def test_a_run_cannot_be_below_itself() -> None:
    made = requests(started(span_id="s1", parent_span="s1"), started("r2", span_id="s2", parent_span="s1"))
    made.absorb(FleetFrame(desk(), (started(span_id="s1", parent_span="s2"),), NOON))
    assert [line.run_id for line in made.lines()] == ["r1", "r2"]


@pytest.mark.parametrize(
    ("principal", "event", "reason"),
    [
        (ALICE, hop(status=401), "refused with 401"),
        (ALICE, hop(status=403), "refused with 403"),
        (ALICE, hop(status=401, audience=("api://x",)), "refused with 401; the key is for api://x"),
        ("", hop(source="none", fingerprint="", status=401), "refused with 401 without a key"),
        (ALICE, hop(expires_at=NOON), "the key had expired"),
        (ALICE, hop(fingerprint=BOB), "not the caller's key: b0b00000 was sent, the caller has a11ce000"),
        ("", hop(fingerprint=BOB), "not the caller's key: b0b00000 was sent, the caller has none"),
    ],
)
def test_what_is_odd_is_told_in_words(principal: str, event: AuthHop, reason: str) -> None:
    assert odd(started(principal=principal), event) == [reason]


@pytest.mark.parametrize(
    "event",
    [
        hop(expires_at=NOON + 2),  # it holds when it is sent; that it expires later is no news
        hop(source="configured", fingerprint=VAULT),
        hop(source="none", fingerprint=""),
        hop(status=404),
        hop(status=None),
        hop(source="none", fingerprint="", expires_at=NOON),
    ],
)
def test_what_is_usual_is_not_odd(event: AuthHop) -> None:
    assert odd(started(principal=ALICE), event) == []


@pytest.mark.parametrize(
    ("audience", "fit"),
    [
        ("http://127.0.0.1:9000/mcp", True),
        ("http://127.0.0.1:9000", True),
        ("http://127.0.0.1:9000/", True),
        ("http://127.0.0.1:9000/vault", False),
        ("http://127.0.0.1:9000/mc", False),
        ("https://vault.example/mcp", False),
        ("http://127.0.0.1:9001/mcp", False),
        ("api://vault", True),
        ("http://[", True),
        ("", True),
    ],
)
def test_a_key_for_another_url_than_the_servers_is_a_finding(audience: str, fit: bool) -> None:
    one = replace(desk().agents[0], downstreams=(Downstream("vault", "http", "http://127.0.0.1:9000/mcp"),))
    made = CredentialRequests()
    events = started(agent=one.name, principal=ALICE), hop(agent=one.name, audience=(audience,))
    made.absorb(FleetFrame(replace(desk(), agents=(one,)), events, NOON))
    finding = f"the key is for {audience}, but went to http://127.0.0.1:9000/mcp"
    assert made.lines()[1].findings == (() if fit else (finding,))
    assert fits(("https://other.example", "http://127.0.0.1:9000/mcp"), "http://127.0.0.1:9000/mcp")


def test_an_agent_of_the_fleet_looks_at_the_audience_itself() -> None:
    target = replace(desk().agents[1], url="http://127.0.0.1:9000/mcp")
    link = Downstream(target.name, "http", "http://127.0.0.1:9000/mcp")
    one = replace(desk().agents[0], downstreams=(link,))
    events = started(agent=one.name), hop(to=target.name, agent=one.name, audience=("https://fleet.example",))
    made = CredentialRequests()
    made.absorb(FleetFrame(replace(desk(), agents=(one, target)), events, NOON))
    assert not any("is for" in each for line in made.lines() for each in line.findings)


def test_requests_that_only_make_a_connection_share_a_line() -> None:
    bare = {"to": "docs", "source": "none", "fingerprint": ""}
    made = requests(
        started(principal=ALICE),
        hop(method="initialize"),
        hop(method="notifications/initialized", status=202),
        hop(method="", status=405),
        hop(tool="search"),
        *[hop(method="tools/list") for _ in range(2)],
        hop(method="tools/list", status=401),
        hop(method="tools/list", **bare),
    )
    shown = [(line.to, line.method, line.tool, line.times, line.answer) for line in made.lines()[1:]]
    assert shown == [
        ("vault", "connection", "", 5, "200"),
        ("vault", "tools/call", "search", 1, "200"),
        ("vault", "tools/list", "", 1, "401"),
        ("docs", "tools/list", "", 1, "200"),
    ]
    parts = "initialize 200, notifications/initialized 202, stream 405, tools/list 200 x2"
    assert parts in request_details(made.lines()[1], NOON)
    assert [line.method for line in made.lines(["tools/list"])] == ["connection", "tools/list", "tools/list"]


def test_a_call_tells_its_tool_its_time_its_claims_and_the_variable_of_its_key() -> None:
    one = replace(call("r1", "c1", "vault"), tool="search")
    made = requests(
        started(principal=ALICE),
        one,
        replace(one, at=NOON + 1.5, phase="completed"),
        hop(tool="search", subject="alice", issuer="https://id.example", scope="read write"),
        hop(tool="look", source="configured", fingerprint=VAULT, variable="VAULT_TOKEN"),
        ended(),
    )
    run, search, look = made.lines()
    assert (run.seconds, search.seconds, look.seconds) == (3.0, 1.5, None)
    line = "".join(text for text, _ in credential_line(search, 120, NOON, UNICODE))
    assert "concierge → vault/search" in line and "1.5 s" in line
    text = request_details(search, NOON)
    for part in (
        "tool      search",
        "sub       alice",
        "iss       https://id.example",
        "scope     read write",
    ):
        assert part in text
    assert "configured: from the variable VAULT_TOKEN" in request_details(look, NOON)
    assert made.lines(["alice"]) == [run, search] and made.lines(["vault_token"]) == [look]


def test_a_key_is_missing_where_others_of_the_agent_have_one() -> None:
    bare = hop("r2", source="none", fingerprint="")
    both = [started(principal=ALICE), started("r2", principal=BOB)]
    assert odd(*both, bare) == []
    assert odd(*both, bare, hop()) == ["no key, others of this agent went with their caller's"]
    assert odd(*both, bare, hop(source="configured", fingerprint=VAULT)) == [
        "no key, others of this agent went with a configured one"
    ]
    # Who has none to send, sends none.
    assert odd(started(principal=ALICE), hop(), started("r2"), bare) == []
    assert odd(*both, hop(agent="research"), bare) == []


def test_a_key_that_does_not_arrive_as_it_was_sent() -> None:
    asked = [started(principal=ALICE), call("r1", "c1", "research"), hop(to="research")]
    arrived = started("r2", "research", parent_span="c1")
    assert odd(*asked, arrived) == ["sent with key a11ce000, arrived with none"]
    arrived = started("r2", "research", parent_span="c1", principal=BOB)
    assert odd(*asked, arrived) == ["sent with key a11ce000, arrived with key b0b00000"]


def test_only_what_is_odd_and_what_the_filter_wants() -> None:
    made = requests(
        started(principal=ALICE, caller="curl"),
        hop(),
        hop(to="tickets", status=401, audience=("api://t",)),
        started("r2", "research"),
        hop("r2", "papers", agent="research", source="none", fingerprint="", status=None, method="ping"),
    )

    def shown(*words: str, findings_only: bool = False) -> list[str]:
        return [line.to for line in made.lines(words, findings_only=findings_only)]

    assert shown(findings_only=True) == ["tickets"]
    assert shown("refused") == ["tickets"]
    assert shown("agent:concierge") == ["concierge", "vault", "tickets"]
    assert shown("to:vault") == ["vault"]
    assert shown("source:none") == ["research", "papers"]
    assert shown("status:401") == ["tickets"]
    assert shown("status:no") == ["papers"]
    assert shown("key:a11ce", "status:200") == ["vault"]
    assert shown("run:r2") == ["research", "papers"]
    assert shown("api://t") == ["tickets"]
    assert shown("ping") == ["papers"]
    assert shown("agent:research", findings_only=True) == []


def test_what_is_kept_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_REQUESTS", 30)
    monkeypatch.setattr(state, "MAX_KINDS", 5)
    made = CredentialRequests()
    for run in range(50):
        name = f"r{run}"
        asked = [call(name, f"c{run}-{n}", "research") for n in range(20)]
        hops = [hop(name, f"server{n}") for n in range(8)]
        child = started(f"k{run}", "research", parent_span=f"c{run}-0")
        made.absorb(FleetFrame(desk(), (started(name), *asked, *hops, child), NOON))
        assert made.requests == len(made.lines()) <= 30
    assert made.left_out == 150
    assert len(made._spans) <= 10 * 5
    monkeypatch.setattr(state, "MAX_RUNS", 2)
    made.absorb(FleetFrame(desk(), (started("last"),), NOON, dropped=7))
    assert made.lost == 7
    assert len(made._runs) == 2


def test_a_hop_whose_run_began_unseen_is_kept() -> None:
    made = requests(hop(), ended())
    assert shape(made.lines()) == ["a client > concierge none", ". concierge > vault forwarded"]
    assert not any(line.findings for line in made.lines())


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (None, ""),
        (-1, "expired"),
        (0, "00:00:00"),
        (59.9, "00:00:59"),
        (3_661, "01:01:01"),
        (359_999, "99:59:59"),
        (360_000, "4 d 04 h"),
        (86_400 * 400, "400 d 00 h"),
        (86_400 * 4_000, "4000 d"),
    ],
)
def test_a_countdown_has_a_steady_width(left: float | None, text: str) -> None:
    shown, over = expiry(None if left is None else NOON + left, NOON)
    assert shown == text
    assert over is (left == -1)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_every_line_has_the_width_of_the_view(width: int) -> None:
    made = requests(
        started(principal=ALICE, caller="a client with a long name " * 5),
        hop(audience=("api://" + "x" * 80,), expires_at=NOON + 40 * 86_400, status=None),
    )
    for line in made.lines():
        assert width_of(credential_line(line, width, NOON, UNICODE)) == width
    assert width_of(header(width, UNICODE)) <= max(width - 1, 36)


def test_a_hop_in_full_tells_all_and_no_token() -> None:
    made = requests(
        started(principal=ALICE), hop(status=401, audience=("api://vault",), expires_at=NOON - 5), hop(to="x")
    )
    text = request_details(made.lines()[1], NOON + 2)
    for part in (
        "concierge",
        "vault",
        "HTTP 401",
        ALICE,
        "api://vault",
        "expired",
        "Findings:",
        "refused",
    ):
        assert part in text
    assert "unknown" in request_details(made.lines()[2], NOON)


def test_a_hop_that_stands_alone_says_who_called_where_there_is_room() -> None:
    made = requests(started(caller="mallory", principal=ALICE), hop(status=401))
    (line,) = made.lines(findings_only=True)
    wide, small = (
        "".join(text for text, _ in credential_line(line, width, NOON, UNICODE, alone=True))
        for width in (120, 60)
    )
    assert f"mallory → {line.sender} → {line.to}" in wide
    assert "mallory" not in small
    assert f" {line.sender} → {line.to}" in small
    assert "caller    mallory" in request_details(line, NOON)
    beside = "".join(text for text, _ in credential_line(line, 120, NOON, UNICODE))
    assert "mallory" not in beside


def test_a_question_to_a_person_is_a_line_with_its_answer() -> None:
    asked = QuestionAsked(
        at=NOON + 1, run_id="r1", agent="concierge", question="q", kind="approval", tool="x__y"
    )
    relayed = replace(asked, run_id="r0", relayed=True)
    answered = QuestionAnswered(
        at=NOON + 5, run_id="r1", agent="concierge", question="q", action="accept", by="token:ci"
    )
    (line,) = [each for each in requests(started(), asked).lines() if each.asked]
    assert (line.sender, line.to, line.tool, line.answer) == ("concierge", "a person", "x__y", "waits")
    lines = requests(started(), relayed, asked, asked, answered).lines()
    (line,) = [each for each in lines if each.asked]
    assert (line.to, line.answer, line.seconds, line.run_id) == ("token:ci", "accepted", 4.0, "r1")
    assert line.matches(["status:accepted"])
    expired = replace(answered, action="", by="deadline", reason="expired")
    (line,) = [each for each in requests(started(), asked, expired).lines() if each.asked]
    assert (line.to, line.answer) == ("a person", "no answer")
