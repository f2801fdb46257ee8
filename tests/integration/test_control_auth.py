"""Who gets through to the control API, and what becomes of tokens."""

import asyncio
import json
import logging
import os
import stat
import time
from pathlib import Path

import httpx2
import pytest
from support.control import FULL, READ, serving
from support.fake_fleet import FakeFleet

from pallas.model import TokenScope
from pallas.model.redaction import redact_text
from pallas.surfaces.control import control_tokens, token_file
from pallas.surfaces.control.control_api import open_control
from pallas.surfaces.control.control_tokens import BURST, Attempts, ControlTokens, take_tokens

LOOKS = ("/snapshot", "/events", "/log", "/log/1-1", "/agents/vision", "/runs/r1/exchanges", "/nothing")
CHANGES = (
    "/runs/r1/cancel", "/agents/vision/stop", "/agents/vision/restart", "/agents/vision/tools/call",
    "/nothing",
)  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(control_tokens, "_taken", {})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize(
    "authorization",
    [
        None, "", "Bearer", "Bearer wrong-token-of-nobody", f"Basic {FULL}", FULL,
        f"Bearer {FULL[:-1]}", f"Bearer {FULL}x", f"Bearer {FULL} {FULL}", "Bearer \xff",
    ],
)  # fmt: skip
async def test_nothing_is_told_without_a_right_token(authorization: str | None) -> None:
    async with (
        serving(attempts=Attempts(lambda: time.monotonic() * 1_000)) as served,
        served.client(None) as http,
    ):
        headers = {"authorization": authorization.encode("latin-1")} if authorization is not None else {}
        for path in LOOKS:
            answer = await http.get(path, headers=headers)  # type: ignore[arg-type]
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith('Bearer realm="pallas"')
            assert "PALLAS_CONTROL_TOKEN" in answer.json()["error"]
            assert "desk" not in answer.text
        for path in CHANGES:
            assert (await http.post(path, headers=headers)).status_code == 401, path  # type: ignore[arg-type]
        assert served.fleet.cancelled == served.fleet.controlled == served.fleet.called == []


async def test_a_token_in_the_url_or_twice_is_none() -> None:
    async with serving() as served, served.client(None) as http:
        for query in ("token", "access_token", "authorization"):
            assert (await http.get(f"/snapshot?{query}={FULL}")).status_code == 401
        twice = [("authorization", f"Bearer {FULL}"), ("authorization", f"Bearer {FULL}")]
        assert (await http.get("/snapshot", headers=twice)).status_code == 401


async def test_who_may_only_look_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as served, served.client(READ) as http:
        assert (await http.get("/snapshot")).status_code == 200
        with caplog.at_level(logging.INFO, "pallas"):
            for path in CHANGES:
                answer = await http.post(path, json={"tool": "x"})
                assert answer.status_code == 403, path
                assert answer.json()["error"] == "read-only: this token may only read"
            assert (await http.request("DELETE", "/snapshot")).status_code == 403
        assert served.fleet.cancelled == served.fleet.controlled == served.fleet.called == []
    refused = [record for record in caplog.records if getattr(record, "audit", "") == "refused"]
    assert len(refused) == len(CHANGES) + 1
    assert len({record.principal for record in refused}) == 1  # type: ignore[attr-defined]


async def test_a_fleet_that_may_only_be_looked_at_is_not_changed_with_any_token() -> None:
    fleet = FakeFleet()
    fleet.can_control = False
    async with serving(fleet) as served, served.client(FULL) as http:
        for path in CHANGES[:-1]:
            assert (await http.post(path, json={"tool": "x"})).status_code == 403
        assert fleet.cancelled == fleet.controlled == fleet.called == []


async def test_a_web_page_and_a_made_up_name_get_nothing() -> None:
    async with serving() as served, served.client(FULL) as http:
        for path in LOOKS:
            assert (await http.get(path, headers={"host": "evil.example"})).status_code == 421
            answer = await http.get(path, headers={"origin": "http://evil.example"})
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers
        assert (await http.options("/snapshot")).headers.get("access-control-allow-origin") is None


async def test_wrong_tokens_are_limited_also_for_the_right_one_after_them() -> None:
    now = 100.0
    async with serving(attempts=Attempts(lambda: now)) as served:
        async with served.client("wrong-token-of-nobody") as http:
            for _ in range(BURST):
                assert (await http.get("/snapshot")).status_code == 401
            answer = await http.get("/snapshot")
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
        async with served.client(FULL) as http:
            assert (await http.get("/snapshot")).status_code == 429  # a guess that is right is none
            now += 1.1
            assert (await http.get("/snapshot")).status_code == 200
            assert (await http.get("/snapshot")).status_code == 200


def test_attempts_are_counted_by_address_and_few_addresses_are_kept() -> None:
    now = 0.0
    attempts = Attempts(lambda: now)
    for _ in range(BURST):
        assert attempts.wait("1.1.1.1") == 0
        attempts.failed("1.1.1.1")
    assert attempts.wait("1.1.1.1") > 0
    assert attempts.wait("2.2.2.2") == 0
    now = 1.0
    assert attempts.wait("1.1.1.1") == 0
    for number in range(5_000):
        attempts.failed(str(number))
    assert len(attempts._left) == 1_024


def test_the_comparison_takes_no_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        seen.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr(control_tokens.hmac, "compare_digest", compare)
    both = ControlTokens(FULL, READ)
    for presented, scope in (
        (FULL, TokenScope.FULL),
        (READ, TokenScope.READ),
        ("", None),
        ("x" * 9_999, None),
    ):
        seen.clear()
        caller = both.caller_of(presented, "127.0.0.1")
        assert (caller.scope if caller else None) is scope
        assert seen == [(32, 32)] * 3
    assert ControlTokens("", "").caller_of("", "127.0.0.1") is None


def test_a_token_of_the_fleet_itself_is_valid_on_its_machine_only() -> None:
    made = ControlTokens(FULL, READ, local=True)
    for address in ("127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"):
        caller = made.caller_of(FULL, address)
        assert caller is not None and caller.scope is TokenScope.FULL, address
    for address in ("192.0.2.7", "::ffff:192.0.2.7", "2001:db8::1", "unknown", ""):
        assert made.caller_of(FULL, address) is None, address
        seen = made.caller_of(READ, address)
        assert seen is not None and seen.scope is TokenScope.READ, address
        assert ControlTokens(FULL).caller_of(FULL, address) is not None, address


async def test_no_token_is_logged_or_shown(caplog: pytest.LogCaptureFixture) -> None:
    guess = "guess-that-nobody-gave-1"
    with caplog.at_level(logging.DEBUG):
        async with serving() as served:
            for token in (FULL, READ, guess):
                async with served.client(token) as http:
                    await http.get("/snapshot")
                    await http.post("/runs/r1/cancel")
            assert redact_text(f"{FULL} {READ}") == "[redacted] [redacted]"
            assert FULL not in repr(served.api.__dict__)
            assert FULL not in repr(ControlTokens(FULL, READ))
    said = [
        record.getMessage() + str(vars(record))
        for record in caplog.records
        if record.name.startswith("pallas")
    ]
    assert any("cancel run r1" in line for line in said)
    assert not [line for line in said if FULL in line or READ in line or guess in line]


# --- where tokens come from


def test_given_tokens_are_taken_out_of_the_environment_and_known_again() -> None:
    environ = {"PALLAS_CONTROL_TOKEN": FULL, "PALLAS_CONTROL_READ_TOKEN": READ, "HOME": "/home/x"}
    given, problems = take_tokens(environ)
    assert (given.full, given.read, problems) == (FULL, READ, ())
    assert environ == {"HOME": "/home/x"}
    again, _ = take_tokens(environ)  # the fleet is started anew in this process
    assert (again.full, again.read) == (FULL, READ)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"PALLAS_CONTROL_TOKEN": "short"}, "has 5 characters"),
        ({"PALLAS_CONTROL_READ_TOKEN": "with blanks in between"}, "without blanks"),
        ({"PALLAS_CONTROL_TOKEN": "ümlaut-in-the-middle"}, "ASCII"),
        ({"PALLAS_CONTROL_TOKEN": FULL, "PALLAS_CONTROL_READ_TOKEN": FULL}, "is the same"),
    ],
)
def test_tokens_that_are_wrong_turn_it_off_and_say_why(
    environ: dict[str, str], says: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = list(environ.values())
    opened = open_control(
        FakeFleet(), project=tmp_path, bind="127.0.0.1", port=1, log_file=tmp_path / "l", environ=environ
    )
    assert opened is None
    assert says in redact_text(caplog.text)  # as the log would have it
    assert not [value for value in values if value in caplog.text]
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("bind", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::"])
def test_a_fleet_that_loopback_reaches_keeps_a_token_for_its_user_alone(bind: str, tmp_path: Path) -> None:
    opened = open_control(
        FakeFleet(), project=tmp_path, bind=bind, port=24200, log_file=tmp_path / "l", environ={}
    )
    assert opened is not None
    path = opened.token_file
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    (kept,) = token_file.find_tokens(24200)
    assert (kept.port, kept.project, kept.pid) == (24200, str(tmp_path.resolve()), os.getpid())
    assert len(kept.token) >= 43
    assert opened.tokens.local
    assert kept.token not in repr(kept)
    assert token_file.find_tokens(24201) == ()
    opened.close()
    assert not path.exists()
    opened.close()


@pytest.mark.parametrize("bind", ["192.0.2.7", "example.org"])
def test_a_fleet_that_loopback_does_not_reach_has_none_without_a_token(
    bind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pallas"):
        opened = open_control(
            FakeFleet(), project=tmp_path, bind=bind, port=1, log_file=tmp_path / "l", environ={}
        )
    assert opened is None
    (record,) = [record for record in caplog.records if "control API is off" in record.getMessage()]
    assert "PALLAS_CONTROL_TOKEN" in record.getMessage()
    assert not list(tmp_path.rglob("*.json"))
    environ = {"PALLAS_CONTROL_READ_TOKEN": READ}
    opened = open_control(
        FakeFleet(), project=tmp_path, bind=bind, port=1, log_file=tmp_path / "l", environ=environ
    )
    assert opened is not None
    assert opened.token_file is None


def test_a_given_token_is_not_written_down(tmp_path: Path) -> None:
    environ = {"PALLAS_CONTROL_TOKEN": FULL}
    opened = open_control(
        FakeFleet(), project=tmp_path, bind="127.0.0.1", port=1, log_file=tmp_path / "l", environ=environ
    )
    assert opened is not None
    assert opened.token_file is None
    assert not list(tmp_path.rglob("*.json"))


def test_the_file_of_another_fleet_is_not_removed(tmp_path: Path) -> None:
    path = token_file.store_token("first-token", tmp_path, 24200)
    token_file.store_token("second-token", tmp_path, 24200)
    token_file.remove_token(path, "first-token")
    assert [kept.token for kept in token_file.find_tokens(24200)] == ["second-token"]
    token_file.remove_token(path, "second-token")
    token_file.remove_token(path, "second-token")
    assert token_file.find_tokens(24200) == ()


def test_a_file_that_others_may_read_or_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    path = token_file.store_token("the-token", tmp_path, 24200)
    path.chmod(0o640)
    with pytest.raises(token_file.TokenFileExposed, match="read by others"):
        token_file.find_tokens(24200)
    path.chmod(0o600)
    aside = path.with_name("aside")
    path.rename(aside)
    path.symlink_to(aside)
    assert token_file.find_tokens(24200) == ()


def test_a_folder_that_is_open_is_closed_by_the_fleet_and_refused_by_the_reader(tmp_path: Path) -> None:
    folder = token_file.token_folder()
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(token_file.TokenFileExposed, match="chmod 700"):
        token_file.find_tokens(24200)
    token_file.store_token("the-token", tmp_path, 24200)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "link"
    link.symlink_to(elsewhere)
    with pytest.raises(token_file.TokenFileExposed, match="not a folder of yours"):
        token_file.store_token("the-token", tmp_path, 24200, link)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"token": 7}', "x" * 9_000])
def test_a_file_that_holds_no_token_is_passed_over(tmp_path: Path, content: str) -> None:
    path = token_file.store_token("the-token", tmp_path, 24200)
    path.write_text(content)
    assert token_file.find_tokens(24200) == ()


def test_the_token_of_the_fleet_that_lives_comes_first(tmp_path: Path) -> None:
    dead = token_file.store_token("of-the-dead", tmp_path / "a", 24200)
    document = json.loads(dead.read_text())
    dead.write_text(json.dumps(document | {"pid": 2**22 + 1}))
    token_file.store_token("of-the-living", tmp_path / "b", 24200)
    assert [kept.token for kept in token_file.find_tokens(24200)] == ["of-the-living", "of-the-dead"]


def test_what_many_killed_fleets_left_behind_hides_no_token(tmp_path: Path) -> None:
    for port in range(14200, 14300):
        token_file.store_token("of-the-dead", tmp_path, port)
    token_file.store_token("of-the-living", tmp_path, 24200)
    assert [kept.token for kept in token_file.find_tokens(24200)] == ["of-the-living"]


def test_no_folder_at_all_is_no_token_and_no_crash(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").write_text("a file in the way")
    opened = open_control(
        FakeFleet(), project=tmp_path, bind="127.0.0.1", port=1, log_file=tmp_path / "l", environ={}
    )
    assert opened is None
    assert "set PALLAS_CONTROL_TOKEN" in caplog.text


async def test_streams_end_with_a_token_that_is_right_only(tmp_path: Path) -> None:
    async with serving() as served:
        refused = [httpx2.codes.UNAUTHORIZED] * 3
        async with served.client("wrong-token-of-nobody") as http:
            answers = await asyncio.gather(*(http.get("/events") for _ in range(3)))
        assert [answer.status_code for answer in answers] == refused
        assert served.api._streams == 0
