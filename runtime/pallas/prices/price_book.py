"""The prices of a project: its own ones, then those of the list."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pallas.model import StepUsage
from pallas.model.money import MAX_COST, USD

if TYPE_CHECKING:
    from .list_prices import ListPrices


_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PriceRule:
    """A price for the models that fit ``pattern``: US dollars for a million tokens.

    ``pattern`` is a glob on the model's name, or on ``PROVIDER.MODEL``. With ``like`` (``PROVIDER.MODEL``)
    they cost what that model costs in the list. Cached tokens and cache writes cost what other input does
    where nothing else is said.
    """

    pattern: str
    input: Decimal = Decimal(0)
    output: Decimal = Decimal(0)
    cached: Decimal | None = None
    cache_write: Decimal | None = None
    like: str = ""

    def fits(self, provider: str, model: str) -> bool:
        """Whether it is for this model."""
        return fnmatchcase(model, self.pattern) or fnmatchcase(f"{provider}.{model}", self.pattern)

    def price(self, usage: StepUsage) -> int:
        """What this usage costs, in nano-US-dollars."""
        cached, writes = usage.cached or 0, usage.cache_writes or 0
        plain = max(0, (usage.input or 0) - cached - writes)
        cached_at = self.input if self.cached is None else self.cached
        writes_at = self.input if self.cache_write is None else self.cache_write
        total = plain * self.input + cached * cached_at + writes * writes_at
        return _nano((total + (usage.output or 0) * self.output) / _MILLION)


class PriceBook:
    """What models cost. May be used from any thread.

    ``rules`` are the project's own; the first one that fits counts. What the offline model on
    ``offline_port`` of this machine answers costs nothing; 0 for a project without one.
    """

    def __init__(self, rules: Sequence[PriceRule] = (), offline_port: int = 0) -> None:
        self._rules = tuple(rules)
        self._offline_port = offline_port
        self._list: ListPrices | None = None

    def adopt(self, rules: Sequence[PriceRule], offline_port: int = 0) -> None:
        """Go by these prices from now on."""
        self._rules = tuple(rules)
        self._offline_port = offline_port

    def price(
        self, provider: str, model: str, usage: StepUsage, at: float | None = None, url: str = ""
    ) -> int | None:
        """What a question to a model cost, in nano-US-dollars; None if it is not known.

        ``provider`` is fast-agent's name of it, ``at`` when it was asked (Unix seconds, None for now),
        ``url`` where: a server of one's own network has no price but the project's own, and the project's
        offline model is free.
        """
        rule = self._rule(provider, model)
        if rule is None and _is_local(url, self._offline_port):
            return 0
        if usage.input is None or usage.output is None:
            return None
        if rule is not None and not rule.like:
            return rule.price(usage)
        if rule is not None:
            provider, _, model = rule.like.partition(".")
            url = ""
        if is_own_network(url):
            return None
        found = self._listed().price(provider, model, usage, at, url)
        return _nano(found) if found is not None else None

    def prepare(self, provider: str, model: str, url: str = "") -> None:
        """Load the list in a thread if the price of this model will be looked up there. Returns at once."""
        if self._list is None and self._is_listed(provider, model, url):
            self._listed().load_soon()

    async def ready(self, provider: str, model: str, url: str = "") -> None:
        """Wait until ``price`` does not block for this model: a thread loads the list if it is needed."""
        if self._is_listed(provider, model, url) and not (prices := self._listed()).is_loaded:
            await asyncio.to_thread(prices.load)

    def _is_listed(self, provider: str, model: str, url: str) -> bool:
        rule = self._rule(provider, model)
        return bool(rule.like) if rule is not None else not is_own_network(url)

    def _rule(self, provider: str, model: str) -> PriceRule | None:
        return next((rule for rule in self._rules if rule.fits(provider, model)), None)

    def _listed(self) -> "ListPrices":
        if self._list is None:
            from .list_prices import ListPrices

            self._list = ListPrices()
        return self._list


def _nano(usd: Decimal) -> int:
    return min(MAX_COST, int((usd * USD).to_integral_value(ROUND_HALF_UP)))


_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_OWN: Final = (".local", ".localhost", ".internal", ".lan", ".home.arpa")


@lru_cache(maxsize=256)
def _is_local(url: str, port: int) -> bool:
    try:
        parts = urlsplit(url)
        return bool(port) and parts.hostname in _LOOPBACK and parts.port == port
    except ValueError:
        return False


@lru_cache(maxsize=256)
def is_own_network(url: str) -> bool:
    """Whether the host of this URL is in one's own network: nothing is known of its prices.

    False for an empty URL.
    """
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if not host:
        return False
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(_OWN)
