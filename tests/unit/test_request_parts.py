"""A conversation whose beginning is remembered is recorded as one that is seen for the first time."""

import json
from typing import Any

import pytest

from pallas.model.long_strings import MAX_STRING
from pallas.telemetry import request_parts
from pallas.telemetry.request_parts import MessageChain, PartCache, RequestParts
from pallas.telemetry.wire_record import masked

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


def test_a_long_text_is_kept_as_it_is_but_for_its_secrets() -> None:
    # It is masked as JSON, whichever library writes that.
    odd = "".join(map(chr, range(0x20, 0x300))) + "\t\n\u2028\ufeff\U0001f600"
    text = f"{odd} token: sk-0123456789abcdef " * (MAX_STRING // len(odd))
    body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    (chain,) = (value for name, value in PartCache().split(body, "thread").fields if name == "messages")
    assert isinstance(chain, MessageChain)
    kept = json.loads(chain.chain[0].whole, strict=False)["content"]
    assert "sk-0123456789abcdef" not in kept
    assert kept == json.loads(masked(json.dumps(text, ensure_ascii=False)), strict=False)
