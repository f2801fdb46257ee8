"""A conversation whose beginning is remembered is recorded as one that is seen for the first time."""

import json
from typing import Any

import pytest

from pallas.telemetry import request_parts
from pallas.telemetry.request_parts import PartCache, RequestParts

SYSTEM = {"role": "system", "content": "You answer."}
HI, YES, MORE = ({"role": "user", "content": text} for text in ("hi", "yes", "more ] , ["))
CONVERSATION: list[list[dict[str, Any]]] = [
    [],
    [SYSTEM],
    [SYSTEM, SYSTEM, HI],
    [SYSTEM, HI],
    [SYSTEM, HI, YES],
    [SYSTEM, HI, YES],
    [SYSTEM, HI, YES, MORE, HI],
    [SYSTEM, HI, {**YES, "content": "yes, changed"}, MORE, HI],
    [SYSTEM, HI, {**YES, "content": "yes, changed"}, MORE, HI, YES],
    [HI],
    [HI, YES],
]


def split(cache: PartCache, messages: list[dict[str, Any]], blanks: bool) -> RequestParts:
    body = json.dumps({"model": "m", "messages": messages}, indent=2 if blanks else None)
    return cache.split(body.encode(), "thread")


@pytest.mark.parametrize("room", [request_parts.MAX_CHAINS, 0])
@pytest.mark.parametrize("blanks", [False, True])
def test_a_conversation_goes_on_changes_and_begins_again(
    monkeypatch: pytest.MonkeyPatch, room: int, blanks: bool
) -> None:
    monkeypatch.setattr(request_parts, "MAX_CHAINS", room)
    cache = PartCache()
    for messages in CONVERSATION:
        found, fresh = split(cache, messages, blanks), split(PartCache(), messages, blanks)
        assert json.loads(found.text())["messages"] == messages
        assert (found.text(), found.digest, found.messages, found.stored()) == (
            fresh.text(),
            fresh.digest,
            fresh.messages,
            fresh.stored(),
        )
