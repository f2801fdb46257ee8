"""What is kept of messages, for operators: whole, masked, and bounded."""

from typing import Any

from lxml import etree
from support.pumped import Ask, Handler, World, echo, respond, to

from pallas.contract import HandlerMetadata, HandlerResponse
from pallas.messaging import message_log
from pallas.messaging.message_log import MessageLog
from pallas.model import MessagePassed
from pallas.model.redaction import forget, redact
from pallas.payloads import PayloadType, target_and_payload


def passed(number: int, run: str = "run-1", **more: Any) -> MessagePassed:
    fields = {"sender": "a", "to": "b", "frame": "f", "route": "call", **more}
    return MessagePassed(run_id=run, agent="a", number=number, **fields)


async def test_envelopes_are_kept_as_they_went() -> None:
    # HC-11: what stands around a payload is the pump's own
    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("echo", "<from>root</from>") if isinstance(payload, Ask) else respond()

    world = World(Handler("calls", calls, peers=["echo"]), Handler("echo", echo))
    await world.send("calls", Ask())
    kept = world.pump.envelopes("run-1")
    assert [(each.number, each.sender, each.to, each.route) for each in kept] == [
        (1, "system.caller", "calls", "call"), (2, "calls", "echo", "call"),
        (3, "echo", "calls", "respond"), (4, "calls", "system.caller", "result"),
    ]  # fmt: skip
    for each in kept:
        document = etree.fromstring(each.xml)
        meta = document[0]
        assert document.tag == f"{{{message_log.ENVELOPE}}}message"
        assert [child.text for child in meta] == [each.sender, each.to, each.frame]
        to_, [payload] = target_and_payload(document)
        assert to_ == each.to
        assert etree.QName(payload).namespace is None
    inside = kept[1].xml.partition("</meta>")[2].rpartition("</message>")[0]
    assert PayloadType.of(Ask).parse(inside.encode()).xml == (
        b"<Ask><text>&lt;from&gt;root&lt;/from&gt;</text></Ask>"
    )
    assert all(each.seconds is not None for each in kept[:3])
    assert [each.number for each in world.pump.envelopes("run-1", after=1, limit=2)] == [2, 3]
    assert world.pump.envelopes("run-9") == ()


async def test_secrets_are_masked_and_what_is_masked_stays_xml() -> None:
    # PR-36: the caller's token too, though the log forgets it with the run
    bearer = "tok<en-of&-the-caller"
    redact(bearer)
    try:
        world = World(Handler("echo", echo))
        text = f'{bearer} Authorization: Bearer abcdefgh12345678</text> "password": "hunter22" \x1b\u202e'
        await world.send("echo", Ask(text.replace("\x1b", "")), bearer=bearer)
    finally:
        forget(bearer)
    for each in world.pump.envelopes("run-1"):
        etree.fromstring(each.xml)
        assert "tok&lt;en" not in each.xml
        assert "abcdefgh12345678" not in each.xml
        assert "hunter22" not in each.xml
        assert "\u202e" not in each.xml


async def test_a_field_that_is_named_like_a_secret_is_one() -> None:
    log = MessageLog()
    run = log.open("run-1")
    run.add(passed(1), b'<Login><user>me</user><api_key>12</api_key><note api-key="12">n</note></Login>')
    [kept] = log.envelopes("run-1")
    assert "<user>me</user><api_key>[redacted]</api_key>" in kept.xml
    assert 'api-key="[redacted]"' in kept.xml


def test_a_long_payload_is_cut() -> None:
    log = MessageLog()
    run = log.open("run-1")
    run.add(passed(1), b"<Ask><text>" + b"x" * 1_000_000 + b"</text></Ask>")
    [kept] = log.envelopes("run-1")
    assert kept.cut
    assert len(kept.xml) < message_log.MAX_BODY + 500
    assert log.size < message_log.MAX_BODY + 10_000


def test_what_is_kept_is_bounded() -> None:
    log = MessageLog(max_bytes=20_000, max_runs=3)
    for number in range(5):
        run = log.open(f"run-{number}")
        for each in range(20):
            run.add(passed(each + 1, f"run-{number}"), b"<A/>" + b" " * 100)
    assert log.size <= 20_000
    assert log.envelopes("run-0") == log.envelopes("run-1") == ()
    assert len(log.envelopes("run-4")) == 20
    gone = log.of("run-3")
    for number in range(5, 9):
        log.open(f"run-{number}")
    assert log.of("run-3") is None
    assert gone is not None
    before = log.size
    gone.add(passed(99, "run-3"), b"<A/>")  # of a run that is kept no more
    assert log.size == before == 0


def test_messages_of_one_run_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(message_log, "MAX_MESSAGES", 10)
    log = MessageLog()
    run = log.open("run-1")
    for number in range(1, 31):
        run.add(passed(number), b"<A/>")
    assert [each.number for each in log.envelopes("run-1")] == list(range(21, 31))
    assert log.size == 10 * (message_log._OWN + 4)
