"""The price list of genai-prices, as it was installed: nothing is fetched.

It takes 0.2 s to load, so it is loaded with the first price that is looked up, in a thread where there is
time.
"""

import logging
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from threading import Lock, Thread
from types import ModuleType
from typing import Any, Final

from pallas.model import StepUsage

log = logging.getLogger(__name__)

_NAMES: Final = {
    "anthropic-vertex": "google",
    "bedrock": "aws",
    "copilot": "github-copilot",
    "googleoai": "google",
    "metaai": "meta",
    "moonshot": "moonshotai",
    "responses": "openai",
    "xai": "x-ai",
}
"""What the list calls providers that fast-agent calls otherwise."""
_ANY: Final = frozenset({"codexresponses", "fast-agent", "generic", "openresponses", "tensorzero"})
"""Providers of fast-agent that say nothing of who is paid, or are not paid by the token."""
_HUGGING_FACE: Final = "hf"


class ListPrices:
    """Prices of models by their provider."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._library: ModuleType | None = None
        self._loader: Thread | None = None
        self._known = lru_cache(maxsize=1_000)(self._find)

    def load_soon(self) -> None:
        """Load the list in a thread. Returns at once."""
        if self._library is None and self._loader is None:
            self._loader = Thread(target=self._loaded, name="load prices", daemon=True)
            self._loader.start()

    @property
    def is_loaded(self) -> bool:
        """Whether the list is there."""
        return self._library is not None

    def load(self) -> None:
        """Load the list, and return when it is there."""
        self._loaded()

    def price(
        self, provider: str, model: str, usage: StepUsage, at: float | None, url: str
    ) -> Decimal | None:
        """What a model's answer costs in US dollars; None if the list does not know the model."""
        found = self._known(provider, model, url)
        if found is None:
            return None
        its_provider, its_model = found
        when = datetime.fromtimestamp(at, UTC) if at is not None else None
        # Counts that do not fit together are taken without what tokens are of.
        plain = StepUsage(usage.input, usage.output, usage.cached, usage.cache_writes)
        for counts in (usage, plain) if usage != plain else (plain,):
            try:
                counted = self._loaded().Usage(**_counts(counts))
                price = its_model.calc_price(counted, its_provider, genai_request_timestamp=when)
            except ValueError:
                continue
            return price.total_price if price.model_price != self._loaded().types.ModelPrice() else None
        return None

    def _find(self, provider: str, model: str, url: str) -> tuple[Any, Any] | None:
        """The list's provider and model. One that the URL belongs to counts before the one that is named."""
        snapshot = self._loaded().data_snapshot.get_snapshot()
        name = _NAMES.get(provider, provider)
        ref = model
        if provider == _HUGGING_FACE:  # ORG/MODEL:WHO_SERVES_IT
            ref, _, served = model.partition(":")
            name = f"huggingface_{served}"
        tries: list[dict[str, Any]] = [{"provider_id": None, "provider_api_url": url}] if url else []
        if provider not in _ANY:
            tries.append({"provider_id": name, "provider_api_url": None})
        for each in tries:
            try:
                found: tuple[Any, Any] = snapshot.find_provider_model(ref, None, **each)
            except LookupError:
                continue
            return found
        log.info("the price of the model %s of %s is not known", model, provider or "an unknown provider")
        return None

    def _loaded(self) -> ModuleType:
        with self._lock:
            if self._library is None:
                import genai_prices

                genai_prices.data_snapshot.get_snapshot()
                self._library = genai_prices
            return self._library


def _counts(usage: StepUsage) -> dict[str, int]:
    """The counts by the list's names. Zero says that a count is known: none of the cached tokens is sound."""
    long = usage.cache_writes_1h or 0
    writes = usage.cache_writes or 0
    found = {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_tokens": usage.cached,
        "cache_write_tokens": usage.cache_writes,
        "output_reasoning_tokens": usage.reasoning,
        "input_audio_tokens": usage.input_audio,
        "output_audio_tokens": usage.output_audio,
        "input_image_tokens": usage.input_image,
        "output_image_tokens": usage.output_image,
    }
    counts = {name: count for name, count in found.items() if count}
    if long and long <= writes:
        counts |= {"cache_write_1h_tokens": long, "cache_write_5m_tokens": writes - long}
    if usage.cached and usage.input_audio:
        counts["cache_audio_read_tokens"] = 0
    if usage.cached and usage.input_image:
        counts["cache_image_read_tokens"] = 0
    if usage.reasoning and usage.output_audio:
        counts["output_audio_reasoning_tokens"] = 0
    if usage.reasoning and usage.output_image:
        counts["output_image_reasoning_tokens"] = 0
    return {"input_tokens": 0, "output_tokens": 0, **counts}
