"""An agent in code: it asks a model for what only the shop knows, a tool for the sum, and then responds."""

import re
from dataclasses import dataclass

from pallas.contract import HandlerMetadata, HandlerResponse, SystemError, Text, scratch

from .pricing import Order, Total


@dataclass
class OfferRequest:
    """Whoever wants an offer sends this: a person, a program, or a model that sees it as a tool."""

    sku: str
    quantity: int
    customer: str = "our customer"
    discount: float = 0.0  # percent


@dataclass
class Offer:
    """What comes back."""

    text: str


async def write_offer(
    payload: OfferRequest | Text | Total | SystemError, metadata: HandlerMetadata
) -> HandlerResponse:
    """Called once for the request, and once for each answer: one message at a time, nothing waits in here."""
    notes = scratch()  # of this conversation alone; gone when it has been answered
    match payload:
        case OfferRequest():
            notes["request"] = payload
            return HandlerResponse(Text(f"How many of {payload.sku} are in stock?"), to="catalogue")
        case Text():
            found = re.search(r"^[^,]+, (?P<product>.+?): .*?(?P<price>[\d,]+\.\d\d) EUR", payload.text)
            request = notes["request"]
            if found is None:
                return HandlerResponse.respond(Offer(f"There is no offer: catalogue knows no {request.sku}."))
            notes["product"] = found["product"].strip()
            order = Order(float(found["price"].replace(",", "")), request.quantity, request.discount)
            return HandlerResponse(order, to="pricing")
        case Total():
            request = notes["request"]
            return HandlerResponse.respond(
                Offer(
                    f"For {request.customer}: {request.quantity} × {notes['product']} ({request.sku}), "
                    f"{payload.net} EUR net, {payload.vat} EUR VAT, {payload.total} EUR in all."
                )
            )
        case SystemError():  # what somebody could not do, in words that say nothing of who it was
            return HandlerResponse.respond(Offer(f"There is no offer just now: {payload.message}"))
