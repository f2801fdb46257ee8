"""What a server offered is kept masked and bounded, and says what was too large."""

import json

from pallas.executors.server_offers import MAX_INSTRUCTIONS, MAX_OFFER, stored_offer
from pallas.model.codec import decode
from pallas.model.redaction import forget, redact
from pallas.model.server_offer import ServerOffer

TOOL = {"name": "find", "description": "Find.", "inputSchema": {"type": "object"}}


def kept(offer: ServerOffer) -> ServerOffer:
    return decode(ServerOffer, json.loads(stored_offer(offer).body))


def test_equal_offers_have_one_digest_and_all_of_it() -> None:
    offer = ServerOffer("shop", "Shop", "1", "2026-07-28", {"tools": {}}, "Find first.", (TOOL,), ("greet",))
    assert kept(offer) == offer
    assert stored_offer(offer) == stored_offer(ServerOffer(**{f: getattr(offer, f) for f in offer.__slots__}))
    other = ServerOffer("shop", "Shop", "1", "2026-07-28", {"tools": {}}, "Find last.", (TOOL,), ("greet",))
    assert stored_offer(other).digest != stored_offer(offer).digest


def test_secrets_are_masked_wherever_they_stand() -> None:
    secret = "canary-4711-of-an-offer"
    redact(secret)
    try:
        schema = {"type": "object", "properties": {"key": {"default": secret}}}
        tool = {**TOOL, "description": f"Use {secret}.", "inputSchema": schema}
        stored = stored_offer(ServerOffer("shop", instructions=f"Say {secret}", tools=(tool,)))
    finally:
        forget(secret)
    assert secret not in stored.body
    assert "[redacted]" in stored.body


def test_what_is_too_large_is_left_out_and_named() -> None:
    large = {**TOOL, "description": "x" * (MAX_OFFER // 4)}
    tools = tuple({**large, "name": f"find{number}"} for number in range(6))
    offer = ServerOffer("shop", instructions="y" * (MAX_INSTRUCTIONS + 10), tools=tools, prompts=("p",))
    assert len(stored_offer(offer).body) <= MAX_OFFER
    found = kept(offer)
    assert 0 < len(found.tools) < len(tools)
    assert found.tool_names == tuple(f"find{number}" for number in range(len(found.tools)))
    assert found.missing == (
        "10 characters of its instructions",
        f"its last {6 - len(found.tools)} tools: all of it has more than 16 Mi characters",
    )
