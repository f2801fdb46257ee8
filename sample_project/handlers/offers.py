"""An agent in code: it asks a model for the product, a handler for the price, and then responds."""

import re
from dataclasses import dataclass

from pallas.contract import HandlerMetadata, HandlerResponse, SystemError, Text, scratch

from .pricing import Order, Total


@dataclass
class OfferRequest:
    """The request for an offer, from a user, a program, or a model that sees it as a tool."""

    sku: str
    quantity: int
    customer: str = "our customer"
    discount: float = 0.0  # percent


@dataclass
class Offer:
    """The answer."""

    text: str


async def write_offer(
    payload: OfferRequest | Text | Total | SystemError, metadata: HandlerMetadata
) -> HandlerResponse:
    """Called once for the request, and once for each answer: it handles one message and never waits."""
    notes = scratch()  # only of this conversation; deleted after its answer
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
        case SystemError():  # a message failed; the text does not name the receiver
            return HandlerResponse.respond(Offer(f"There is no offer just now: {payload.message}"))
