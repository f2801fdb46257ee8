"""The wire record: masked before it is kept, and never more than it may be."""

import json

from pallas.model.fingerprint import fingerprint
from pallas.telemetry.wire_record import (
    MAX_BODY,
    MAX_EXCHANGES,
    Body,
    RunWire,
    WireRecord,
    clean_body,
    clean_headers,
)


def say(run: RunWire, text: str = "x") -> None:
    run.begin("downstream", "docs", "tools/call", text.encode()).end(text.encode())


def test_the_oldest_runs_go_when_there_are_too_many() -> None:
    record = WireRecord(max_runs=3)
    for number in range(5):
        say(record.open(f"r{number}"))
    assert [bool(record.exchanges(f"r{number}")) for number in range(5)] == [False, False, True, True, True]


def test_the_oldest_exchanges_go_when_it_is_too_much_and_the_count_stays_right() -> None:
    record = WireRecord(max_bytes=100_000)
    first, second = record.open("first"), record.open("second")
    for _ in range(5):
        say(first, "a" * 10_000)
    late = first.begin("downstream", "docs", "tools/call", b"late")
    for _ in range(4):
        say(second, "b" * 10_000)
    assert record.size <= 100_000
    assert len(record.exchanges("second")) == 4
    assert len(record.exchanges("first")) < 6
    for _ in range(20):
        say(second, "c" * 10_000)
    assert record.exchanges("first") == ()
    before = record.size
    late.end(b"z" * 50_000)  # it went long ago: nothing of it is counted
    say(first, "also late")
    assert record.size == before <= 100_000
    kept = record.exchanges("second")
    assert kept[-1].request == "c" * 10_000
    assert record.size == sum(400 + len(each.request) + len(each.response) for each in kept)


def test_a_run_with_very_many_exchanges_keeps_the_last() -> None:
    record = WireRecord()
    run = record.open("r")
    for number in range(MAX_EXCHANGES + 10):
        say(run, str(number))
    kept = record.exchanges("r")
    assert len(kept) == MAX_EXCHANGES
    assert kept[-1].request == str(MAX_EXCHANGES + 9)


def test_what_comes_after_the_run_without_its_callers_token_is_not_kept() -> None:
    record = WireRecord()
    run = record.open("r")
    open_one, inbound = run.begin("downstream", "d", "m", b"?"), run.begin("inbound", "c", "m", b"?")
    run.live = False
    open_one.end(b"the token is hidden-canary")
    inbound.end(b"the token is hidden-canary", secret="hidden-canary")
    assert [each.response for each in record.exchanges("r")] == ["", "the token is [redacted]"]


def test_headers_keep_a_fingerprint_of_each_credential() -> None:
    headers = clean_headers(
        [
            ("Authorization", "Bearer canary-1"),
            ("cookie", "a=canary-2"),
            ("X-Api-Key", "canary-3"),
            ("x-amz-security-token", "canary-4"),
            ("mcp-session-id", "0123456789abcdef"),
            ("WWW-Authenticate", 'Bearer realm="x"'),
            ("accept", "application/json\x1b[2J"),
        ]
    )
    assert dict(headers) == {
        "Authorization": f"Bearer [key {fingerprint('canary-1')}]",
        "cookie": f"[key {fingerprint('a=canary-2')}]",
        "X-Api-Key": f"[key {fingerprint('canary-3')}]",
        "x-amz-security-token": f"[key {fingerprint('canary-4')}]",
        "mcp-session-id": "01234567…",
        "WWW-Authenticate": 'Bearer realm="x"',
        "accept": "application/json␛[2J",
    }


def test_a_masked_body_is_still_json_and_what_is_no_secret_stays() -> None:
    body = {
        "params": {"_meta": {"progressToken": 3}, "arguments": {"password": 12345, "token": "abcdefghij"}},
        "conversation_id": "0123456789abcdef",
        "local.pallas/conversationId": "0123456789abcdef",
        "usage": {"inputTokens": 120},
    }
    text, cut = clean_body(json.dumps(body).encode())
    assert not cut
    clean = json.loads(text)
    assert clean["params"]["_meta"] == {"progressToken": 3}
    assert clean["params"]["arguments"] == {"password": "[redacted]", "token": "[redacted]"}
    assert clean["conversation_id"] == clean["local.pallas/conversationId"] == "01234567…"
    assert clean["usage"] == {"inputTokens": 120}


def test_a_secret_across_the_cut_leaves_no_stump() -> None:
    secret = "sk-" + "canary" * 20
    text, cut = clean_body(("x" * (MAX_BODY - 40) + " " + secret + " " + "y" * 10_000).encode())
    assert cut
    assert len(text) <= MAX_BODY
    assert "canary" not in text


def test_of_a_stream_of_events_the_last_message_is_kept_however_it_is_cut_up() -> None:
    stream = (
        b": ping\r\n\r\nid: 1\r\ndata: \r\n\r\n"
        b'event: message\r\ndata: {"method": "notifications/progress"}\r\n\r\n'
        b'event: message\r\ndata: {"id": 1, "result": {}}\r\n\r\n: ping\r\n\r\n'
    )
    for size in (1, 3, 7, len(stream)):
        body = Body(events=True)
        for start in range(0, len(stream), size):
            body.feed(stream[start : start + size])
        assert body.end() == (b'{"id": 1, "result": {}}', False)


def test_a_body_is_bounded_while_it_comes_and_says_that_there_was_more() -> None:
    for events in (False, True):
        body = Body(events=events)
        body.feed(b"data: ")
        for _ in range(100):
            body.feed(b"x" * 10_000)
        raw, more = body.end()
        assert more
        assert len(raw) < 400_000


def test_a_body_with_controls_stays_json() -> None:
    body = {"text": "soft\u00adhyphen \x9b31m \x1b[0m \u200b \u202e \r\n"}
    text, cut = clean_body(json.dumps(body, ensure_ascii=False).encode())
    assert (json.loads(text), cut) == (body, False)
    assert not any(ord(each) < 32 or 0x7F <= ord(each) < 0xA0 for each in text)
