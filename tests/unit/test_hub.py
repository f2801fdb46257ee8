"""The event hub: numbered, bounded, and never waiting."""

import threading

from pallas.model import Notice
from pallas.telemetry.event_hub import EventHub


def _notice(text: str) -> Notice:
    return Notice(level="info", text=text)


def test_events_are_numbered_in_order_and_read_after_a_number() -> None:
    hub = EventHub()
    for text in "abc":
        hub.publish(_notice(text))
    batch = hub.since(1)
    assert [(event.seq, event.text) for event in batch.events if isinstance(event, Notice)] == [
        (2, "b"),
        (3, "c"),
    ]
    assert batch.next == 3
    assert batch.dropped == 0


def test_a_reader_that_is_up_to_date_gets_nothing_and_keeps_its_number() -> None:
    hub = EventHub()
    assert hub.since(0).events == ()
    hub.publish(_notice("a"))
    assert hub.since(1).events == ()
    assert hub.since(1).next == 1


def test_a_slow_reader_is_told_how_many_it_lost() -> None:
    hub = EventHub(capacity=3)
    for number in range(10):
        hub.publish(_notice(str(number)))
    batch = hub.since(2)
    assert [event.seq for event in batch.events] == [8, 9, 10]
    assert batch.dropped == 5


def test_a_limit_splits_a_read_without_losing_any() -> None:
    hub = EventHub()
    for number in range(10):
        hub.publish(_notice(str(number)))
    seen: list[int] = []
    seq = 0
    while (batch := hub.since(seq, limit=4)).events:
        seen += [event.seq for event in batch.events]
        seq = batch.next
    assert seen == list(range(1, 11))


def test_publishers_in_many_threads_never_share_a_number() -> None:
    hub = EventHub(capacity=100_000)

    def publish() -> None:
        for _ in range(500):
            hub.publish(_notice("x"))

    threads = [threading.Thread(target=publish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [event.seq for event in hub.since(0, limit=100_000).events]
    assert numbers == list(range(1, 4001))


def test_a_listener_hears_until_it_stops() -> None:
    hub = EventHub()
    heard: list[int] = []
    stop = hub.listen(lambda event: heard.append(event.seq))
    hub.publish(_notice("a"))
    stop()
    hub.publish(_notice("b"))
    assert heard == [1]
