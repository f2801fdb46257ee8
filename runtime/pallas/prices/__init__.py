"""What questions to models cost, in nano-US-dollars, so that sums are exact.

Prices are those of the project (``prices:`` in agents.yaml), then the list of the package genai-prices, which
is part of the installation: no network. A price that neither has is unknown, never zero. ``price_book`` is
what the other rooms use; ``list_prices`` is the only module that imports genai-prices.
"""
