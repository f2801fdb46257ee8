"""The messages of recent runs, for operators: bounded, and masked before they are shown.

The log stores bytes as sent; envelopes are made from them on request. Belongs to one event loop.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final
from xml.sax.saxutils import escape

from lxml import etree

from pallas.model import Envelope, MessagePassed
from pallas.model.redaction import MASK, beyond_cut, is_sensitive, redact_text
from pallas.payloads.xml_element import Element
from pallas.safe_text import sanitize
from pallas.telemetry.ring_store import RingStore

ENVELOPE: Final = "https://xml-pipeline.org/ns/envelope/v1"
"""The namespace of an envelope."""
MAX_BODY: Final = 64 * 1024
"""Bytes of one payload that are stored."""
MAX_BYTES: Final = 16 * 1024 * 1024
MAX_RUNS: Final = 200
MAX_MESSAGES: Final = 10_000
"""Messages stored per run; the oldest are dropped."""

# The approximate size of a message besides its payload, in bytes.
_OWN: Final = 700


class LoggedMessage:
    """A stored message. ``seconds`` is how long its receiver took, None while it works."""

    __slots__ = ("cut", "event", "raw", "seconds")

    def __init__(self, event: MessagePassed, raw: bytes, cut: bool) -> None:
        self.event = event
        self.raw = raw
        self.cut = cut
        self.seconds: float | None = None


class RunMessageLog:
    """The messages of one run, oldest first.

    ``secret`` is the caller's token, masked before a message is stored. The log forgets it when the run is
    over.
    """

    __slots__ = ("_log", "_secrets", "messages", "run_id")

    def __init__(self, log: "MessageLog", run_id: str, secret: str | None) -> None:
        self._log = log
        self.run_id = run_id
        self.messages: deque[LoggedMessage] = deque()
        self._secrets = tuple({secret.encode(), escape(secret).encode()}) if secret else ()

    def add(self, event: MessagePassed, raw: bytes) -> LoggedMessage:
        """Add a routed message; ``raw`` is its payload's XML, empty if it has none."""
        for secret in self._secrets:
            if secret in raw:
                raw = raw.replace(secret, MASK.encode())
        cut = len(raw) > MAX_BODY
        if cut:
            raw = raw[: MAX_BODY + beyond_cut()]
        logged = LoggedMessage(event, raw, cut)
        if self._log.of(self.run_id) is self:  # otherwise newer messages replaced this run
            self.messages.append(logged)
            if len(self.messages) > MAX_MESSAGES:
                self.drop_oldest()
            self._log.grow(_OWN + len(raw))
        return logged

    @property
    def count(self) -> int:
        """The number of messages."""
        return len(self.messages)

    def drop_oldest(self) -> None:
        """Drop its oldest message."""
        self._log.grow(-_OWN - len(self.messages.popleft().raw))

    def forget_secret(self) -> None:
        """Forget the caller's token: the run is over and adds no more messages."""
        self._secrets = ()


class MessageLog(RingStore[RunMessageLog]):
    """The messages of recent runs: at most ``MAX_RUNS`` of them and ``MAX_BYTES`` in all."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_runs: int = MAX_RUNS) -> None:
        super().__init__(max_bytes, max_runs)

    def open(self, run_id: str, secret: str | None = None) -> RunMessageLog:
        """Return the log for a new run."""
        return self.put(run_id, RunMessageLog(self, run_id, secret))

    def envelopes(self, run_id: str, after: int = 0, limit: int | None = None) -> tuple[Envelope, ...]:
        """Return the messages of a run with a ``number`` above ``after``, lowest first, at most ``limit``.

        Empty when none are stored. Secrets are masked, and all text is sanitised. An envelope that was not
        ``cut`` is well-formed, with the payload between ``</meta>`` and the last ``</message>``.
        """
        run = self.of(run_id)
        if run is None:
            return ()
        request = (each for each in run.messages if each.event.number > after)
        return tuple(_envelope(each) for each in islice(request, limit))


def _envelope(logged: LoggedMessage) -> Envelope:
    event = logged.event
    payload, cut = _clean(logged.raw, logged.cut), logged.cut
    if cut:
        payload = payload[:MAX_BODY]
    to = f"<to>{escape(event.to)}</to>" if event.to else ""
    head = f"<from>{escape(event.sender)}</from>{to}<thread>{escape(event.frame)}</thread>"
    end = "" if cut else "</message>"
    return Envelope(
        run_id=event.run_id,
        agent=event.agent,
        number=event.number,
        at=event.at,
        sender=event.sender,
        to=event.to,
        frame=event.frame,
        route=event.route,
        outcome=event.outcome,
        parent=event.parent,
        left=event.left,
        payload=event.payload,
        code=event.code,
        detail=event.detail,
        xml=f'<message xmlns="{ENVELOPE}"><meta>{head}</meta>{payload}{end}' if logged.raw else "",
        cut=cut,
        seconds=logged.seconds,
    )


def _clean(raw: bytes, cut: bool) -> str:
    """Return a payload to show: masked text by text, so that its elements stay whole."""
    if not raw:
        return ""
    # Written by us, and parsed safely before: only a cut one needs recovery.
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, recover=True)
    element: Element | None = etree.fromstring(raw, parser)
    if element is None:  # Nothing can be recovered.
        return ""
    for each in _nodes(element):
        secret = is_sensitive(etree.QName(each).localname)
        if each.text and each.text.strip():
            each.text = MASK if secret and not len(each) else _masked(each.text, cut)
        if each.tail and each.tail.strip():
            each.tail = _masked(each.tail, cut)
        for name, value in each.attrib.items():
            each.set(name, MASK if is_sensitive(etree.QName(name).localname) else _masked(value, cut))
    text = etree.tostring(element, encoding="unicode", with_tail=False)
    if etree.QName(element).namespace is None:  # The envelope has one; the payload needs none.
        end = 1 + len(str(element.tag))
        text = f'{text[:end]} xmlns=""{text[end:]}'
    return text


def _nodes(element: Element) -> Iterator[Element]:
    for each in element.iter():
        if isinstance(each.tag, str):
            yield each


def _masked(text: str, cut: bool) -> str:
    return sanitize(redact_text(text, cut=cut))
