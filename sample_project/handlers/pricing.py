"""A pure tool: it takes a typed message, works something out, and answers whoever asked. No model in it."""

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from pallas.contract import HandlerMetadata, HandlerResponse

VAT = Decimal("0.21")
CENT = Decimal("0.01")


@dataclass
class Order:
    """What is to be paid for. Its fields are the schema that everyone who asks gets to see."""

    price: float
    quantity: int
    discount: float = 0.0  # percent


@dataclass
class Total:
    """In EUR, as text with two digits behind the point."""

    net: str
    vat: str
    total: str


async def price(payload: Order, metadata: HandlerMetadata) -> HandlerResponse:
    """Checked before it gets here: ``quantity`` is a whole number, whatever a model wrote."""
    net = Decimal(str(payload.price)) * payload.quantity * (100 - Decimal(str(payload.discount))) / 100
    net = net.quantize(CENT, ROUND_HALF_UP)
    vat = (net * VAT).quantize(CENT, ROUND_HALF_UP)
    return HandlerResponse(Total(f"{net:,}", f"{vat:,}", f"{net + vat:,}"), to=metadata.from_id)
