"""``pallas check bearer``: the leak test on a project of the user's."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.live import ECHO, agent_module, write_project
from support.project_modules import own_modules

from pallas.access.bearer_lease import BearerLease
from pallas.cli.app import run
from pallas.cli.bearer_check.echo import HeardRequest
from pallas.cli.bearer_check.verdict import judge
from pallas.executors.fastagent import auth_seam

# Nothing answers there: the check contacts no downstream of the project.
AWAY = "http://127.0.0.1:9/mcp"
SERVERS = {
    "shop": {"url": AWAY, "forward_inbound_auth": True},
    "vault": {
        "url": AWAY,
        "forward_inbound_auth": True,
        "headers": {"Authorization": "Bearer of-the-project"},
    },
    "open": {"url": AWAY, "protocol_mode": "legacy"},
    **ECHO["mcp"]["servers"],
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with one downstream, for what holds or fails at each."""
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    root = write_project(
        tmp_path / "project",
        {"one": agent_module("one", ("shop",)), "plain": None},
        config={"mcp": {"servers": {"shop": SERVERS["shop"]}}},
    )
    with own_modules(root):
        yield root


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    root = write_project(
        tmp_path / "project",
        {"one": agent_module("one", ("shop", "vault", "open", "echo")), "plain": None},
        config={"mcp": {"servers": SERVERS}},
    )
    with own_modules(root):
        yield root


@pytest.mark.slow
def test_it_proves_every_downstream_with_a_url_and_shows_no_token(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # PR-26
    assert run(["check", "bearer", str(project), "--callers", "2"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("ok   one -> shop: 10 calls; each call carried its own")
    assert lines[1].startswith("ok   one -> vault: 10 calls; the configured")
    assert lines[2].startswith("ok   one -> open: 10 calls; not opted in")
    assert lines[3] == "ok: no bearer crossed (3 downstreams, 2 callers at once in each protocol version)"
    assert "canary-" not in out + err
    assert "of-the-project" not in out + err


@pytest.mark.slow
def test_an_agent_of_a_card_and_one_that_its_entry_names_are_checked_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # PR-26
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    root = write_project(
        tmp_path / "project",
        {"clerk": None, "named": agent_module("other", ("shop",))},
        keys={"clerk": {"module": None, "card": "agents/clerk.md"}, "named": {"agent": "other"}},
        config={"mcp": {"servers": {"shop": SERVERS["shop"]}}},
        files={"agents/clerk.md": "---\ntype: agent\nname: clerk\nservers: [shop]\n---\nYou file.\n"},
    )
    with own_modules(root):
        assert run(["check", "bearer", str(root), "--callers", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [each.partition(":")[0] for each in lines] == ["ok   clerk -> shop", "ok   named -> shop", "ok"]


@pytest.mark.slow
def test_a_bearer_that_crosses_is_told_and_is_the_exit_status(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a table keyed by server, or a connection that keeps its first caller, would do.
    first: list[str] = []

    class Stuck(BearerLease):
        @property
        def bearer(self) -> str | None:
            if (own := super().bearer) and not first:
                first.append(own)
            return first[0] if first else None

    monkeypatch.setattr("pallas.executors.fastagent.fastagent_executor.BearerLease", Stuck)
    assert run(["check", "--json"]) == 2  # the other check is not in the way
    capsys.readouterr()
    assert run(["check", "bearer", str(small), "--callers", "2", "--json"]) == 1
    out = capsys.readouterr().out
    body = json.loads(out)
    assert body["ok"] is False
    shop = body["verdicts"][0]
    assert shop["downstream"] == "shop"
    assert any("did not carry its own bearer but that of caller" in each for each in shop["problems"])
    assert first[0] not in out


@pytest.mark.slow
def test_a_bearer_that_goes_missing_is_told(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth_seam, "current_lease", lambda: None)
    assert run(["check", "bearer", str(small), "--callers", "2"]) == 1
    assert "LEAK one -> shop: the call of caller 2026-07-28/1 carried no bearer" in capsys.readouterr().out


def test_a_conversation_that_the_next_token_of_its_caller_loses_is_told(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whose a conversation is by the bytes of a token alone, as it was.
    for module in ("runs.conversations", "surfaces.mcp_sessions"):
        monkeypatch.setattr(
            f"pallas.{module}.may_continue", lambda owner, caller, *, secret: owner == caller.id
        )
    assert run(["check", "bearer", str(small), "--callers", "2"]) == 1
    out = capsys.readouterr().out
    for era in ("2026-07-28", "legacy"):
        line = f"LEAK one -> shop: caller {era}/1 lost its conversation with the token of its next turn"
        assert line in out


@pytest.mark.slow
def test_a_conversation_that_another_subject_goes_on_with_is_told(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("runs.conversations", "surfaces.mcp_sessions"):
        monkeypatch.setattr(f"pallas.{module}.may_continue", lambda owner, caller, *, secret: True)
    assert run(["check", "bearer", str(small), "--callers", "2"]) == 1
    out = capsys.readouterr().out
    for era in ("2026-07-28", "legacy"):
        assert f"LEAK one -> shop: another subject continued the conversation of caller {era}/1" in out


@pytest.mark.slow
def test_an_agent_that_does_not_load_is_told_and_the_others_are_checked(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small / "agents" / "plain.py").write_text("undefined_name\n")
    assert run(["check", "bearer", str(small), "--callers", "2"]) == 1
    out = capsys.readouterr().out
    assert "ok   one -> shop" in out
    assert "FAIL plain: could not be checked: agents/plain.py:1: NameError" in out


def test_a_project_without_downstreams_has_nothing_to_leak(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    root = write_project(tmp_path / "project", {"one": None})
    with own_modules(root):
        assert run(["check", "bearer", str(root)]) == 0
    assert "no bearer goes anywhere" in capsys.readouterr().out


def test_a_wrong_project_is_told_as_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "bearer", str(tmp_path)]) == 2
    assert "agents.yaml" in capsys.readouterr().err


def _call(text: str, token: str, what: str = "tools/call", session: str = "") -> HeardRequest:
    return HeardRequest(what, f"Bearer {token}" if token else "", text, session)


@pytest.mark.parametrize(
    ("rule", "heard", "says"),
    [
        ("forwarded", [_call("1", "a"), _call("2", "b")], ""),
        (
            "forwarded",
            [_call("1", "a"), _call("2", "a")],
            "caller 2 did not carry its own bearer",
        ),
        ("forwarded", [_call("1", "x"), _call("2", "b")], "but another one"),
        ("forwarded", [_call("1", ""), _call("2", "b")], "caller 1 carried no bearer"),
        ("forwarded", [_call("1", "a")], "1 of 2 calls arrived"),
        ("forwarded", [_call("1", "a"), _call("stranger", "a")], "the call stranger carried a bearer"),
        (
            "forwarded",
            [_call("1", "a", session="s"), _call("2", "b", session="s")],
            "one MCP session carried",
        ),
        ("none", [_call("1", ""), _call("2", "")], ""),
        ("none", [_call("1", "a"), _call("2", "")], "caller 1 carried the bearer of caller 1"),
        ("configured", [_call("1", "project"), _call("2", "b")], "carried the bearer of caller 2"),
        (
            "none",
            [_call("1", ""), _call("2", ""), _call("", "a", "ping")],
            "ping carried the bearer of caller 1",
        ),
    ],
)
def test_what_was_heard_is_held_against_the_rule(rule: str, heard: list[HeardRequest], says: str) -> None:
    verdict = judge("one", "shop", rule, heard, {"1": "a", "2": "b"}, 2)
    if says:
        assert any(says in problem for problem in verdict.problems), verdict.problems
    else:
        assert verdict.ok, verdict.problems
