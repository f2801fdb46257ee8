"""Makes of what a server offers what runs keep of it: masked, and not too large."""

from dataclasses import replace
from hashlib import sha256
from typing import Final

from pallas.downstreams.offer import Offer
from pallas.model.codec import encode_sparse
from pallas.model.redaction import redact_head
from pallas.model.server_offer import ServerOffer, StoredOffer
from pallas.safe_text import one_line
from pallas.telemetry.wire_record import masked

MAX_OFFER: Final = 16 * 1024 * 1024
"""Most characters of an offer as JSON. What is more is left out, and said in ``missing``."""
MAX_INSTRUCTIONS: Final = 4 * 1024 * 1024
"""Most characters of instructions."""
_OVERHEAD: Final = 64 * 1024
"""Characters for what is neither a tool nor an instruction."""
_MAX_PROMPTS: Final = 2_000
_MAX_NAME: Final = 300


def offer_value(server: str, offer: Offer, instructions: str) -> ServerOffer:
    """What a server offers as runs keep it. Nothing is masked yet."""
    return ServerOffer(
        one_line(server, 80),
        one_line(offer.name, 200),
        one_line(offer.release, 200),
        one_line(offer.version, 40),
        offer.capabilities,
        instructions,
        tuple(each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in offer.tools),
        tuple(one_line(each.name, _MAX_NAME) for each in offer.prompts),
    )


def stored_offer(offer: ServerOffer) -> StoredOffer:
    """An offer as it is stored. Takes some milliseconds for each MiB."""
    text = encode_sparse(offer)
    if len(text) > MAX_OFFER:
        text = encode_sparse(_shortened(offer))
    return masked_offer(text)


def masked_offer(text: str) -> StoredOffer:
    """An offer from its JSON, masked by all that is known here."""
    body = masked(text)
    return StoredOffer(sha256(body.encode("utf-8", "replace")).hexdigest(), body)


def _shortened(offer: ServerOffer) -> ServerOffer:
    missing = list(offer.missing)
    instructions = offer.instructions
    if len(instructions) > MAX_INSTRUCTIONS:
        missing.append(f"{len(instructions) - MAX_INSTRUCTIONS} characters of its instructions")
        instructions = redact_head(instructions, MAX_INSTRUCTIONS)
    prompts = offer.prompts[:_MAX_PROMPTS]
    kept = replace(offer, instructions=instructions, prompts=prompts, tools=(), missing=())
    left = MAX_OFFER - _OVERHEAD - len(encode_sparse(kept))
    tools = []
    for tool in offer.tools:
        left -= len(encode_sparse(ServerOffer("", tools=(tool,))))
        if left < 0:
            break
        tools.append(tool)
    if lost := len(offer.tools) - len(tools):
        missing.append(f"its last {lost} tools: all of it has more than {MAX_OFFER // 2**20} Mi characters")
    if lost := len(offer.prompts) - len(prompts):
        missing.append(f"its last {lost} prompts")
    return replace(kept, tools=tuple(tools), missing=tuple(missing))
