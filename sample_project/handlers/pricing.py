"""A pure tool, without a model: it takes a typed message, calculates a price, and answers the sender."""

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from pallas.contract import HandlerMetadata, HandlerResponse

VAT = Decimal("0.21")
CENT = Decimal("0.01")


@dataclass
class Order:
    """The order. Its fields are the schema that callers see."""

    price: float
    quantity: int
    discount: float = 0.0  # percent


@dataclass
class Total:
    """The price in EUR, as text with two decimals."""

    net: str
    vat: str
    total: str


async def price(payload: Order, metadata: HandlerMetadata) -> HandlerResponse:
    """Return the price. The payload is already validated: ``quantity`` is always a whole number."""
    net = Decimal(str(payload.price)) * payload.quantity * (100 - Decimal(str(payload.discount))) / 100
    net = net.quantize(CENT, ROUND_HALF_UP)
    vat = (net * VAT).quantize(CENT, ROUND_HALF_UP)
    return HandlerResponse(Total(f"{net:,}", f"{vat:,}", f"{net + vat:,}"), to=metadata.from_id)
