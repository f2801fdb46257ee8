"""What worker processes share: signed session ids, the table of connections, metrics in one answer."""

import base64
import json
import os
from typing import Any

from pallas.surfaces.connection_shares import ConnectionShares
from pallas.surfaces.session_seal import MAX_ENDED, VALID_S, SessionClaims, SessionSeal
from pallas.surfaces.status_pages import merged


class Others:
    """Hears nothing."""

    def tell(self, topic: str, body: Any) -> None:
        """Nothing is expected to be told."""


def seal(key: bytes = b"k" * 32, now: float = 0.0, ended: list[str] | None = None) -> SessionSeal:
    told = ended if ended is not None else []
    return SessionSeal(key, Others(), ended=told.append, clock=lambda: now)


def claims(conversation: str = "conv-1", **params: Any) -> SessionClaims:
    params = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "c", "version": "2"}, **params}
    return SessionClaims.of_handshake(params, "one", conversation, "anonymous")


def test_an_id_says_the_same_to_every_process_with_the_key_and_nothing_to_others() -> None:
    said = claims(capabilities={"elicitation": {}})
    session = seal().seal(said)
    assert session.isascii()
    assert session.isprintable()
    assert seal().read(session) == said
    assert said.handshake["params"]["capabilities"] == {"elicitation": {}}
    assert seal(b"x" * 32).read(session) is None
    body, _, signature = session.partition(".")
    forged = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))) | {"owner": "other"}
    other = base64.urlsafe_b64encode(json.dumps(forged, separators=(",", ":")).encode()).decode().rstrip("=")
    for wrong in (
        f"{other}.{signature}",
        f"{body}.",
        f".{signature}",
        body,
        "",
        ".",
        "é.é",
        "A" * 5_000 + ".A",
    ):
        assert seal().read(wrong) is None, wrong
    assert repr(seal()) == "SessionSeal()"


def test_an_id_is_opened_again_for_a_day_and_not_after_its_end() -> None:
    said = claims()
    assert seal(now=said.opened_at + VALID_S - 1).is_fresh(said)
    assert not seal(now=said.opened_at + VALID_S).is_fresh(said)
    ended: list[str] = []
    here, there = seal(ended=ended), seal()
    session = here.seal(said)
    here.end(said)
    assert ended == ["conv-1"]
    assert here.read(session) is None
    assert there.read(session) == said
    there.note_end("conv-1")
    assert there.read(session) is None
    for number in range(MAX_ENDED):
        there.note_end(str(number))
    assert there.read(session) == said  # bounded: the oldest is forgotten


def test_what_a_client_says_of_itself_never_makes_an_id_too_long_for_a_header() -> None:
    long = claims(
        clientInfo={"name": "n" * 10_000, "version": ["?"]},
        capabilities={f"{number}" * 1_000: {"x": "y" * 1_000} for number in range(50)},
    )
    session = seal().seal(long)
    assert len(session) < 4_096
    assert seal().read(session) == long
    assert claims(clientInfo=None, capabilities=None).client == ("unknown", "unknown")


def test_the_process_with_the_fewest_connections_accepts_first() -> None:
    table = os.memfd_create("test")
    os.ftruncate(table, ConnectionShares.size_of(2))
    one, two = ConnectionShares(table, 2, 1), ConnectionShares(table, 2, 2)
    os.close(table)
    one.clear(2)
    assert not one.has_more(5)  # nobody else is there
    two.publish(4)
    assert one.has_more(5)
    assert not one.has_more(4)
    two.publish_port(1234)
    assert one.other_ports() == {2: 1234}
    two.leave()
    two.publish(0)
    assert not one.has_more(100)  # the other one is leaving
    assert two.has_more(0)
    assert one.other_ports() == {}


def test_metrics_of_all_processes_are_one_text_with_a_label() -> None:
    text = (
        "# HELP runs_total Runs.\n# TYPE runs_total counter\n"
        'runs_total{agent="a",why="x y}"} 2.0\n'
        "# HELP up Up.\n# TYPE up gauge\nup 1.0\n"
    )
    assert merged({2: text, 1: text}).splitlines() == [
        "# HELP runs_total Runs.",
        "# TYPE runs_total counter",
        'runs_total{worker="1",agent="a",why="x y}"} 2.0',
        'runs_total{worker="2",agent="a",why="x y}"} 2.0',
        "# HELP up Up.",
        "# TYPE up gauge",
        'up{worker="1"} 1.0',
        'up{worker="2"} 1.0',
    ]
