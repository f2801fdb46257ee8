"""What a replay changes in fast-agent: models need no key. Outside of a replay nothing changes.

``tests/contract/test_hooks.py`` fails when the wrapped function changes.
"""

from typing import Any, Final

from fast_agent.llm.provider_key_manager import ProviderKeyManager

from pallas.executors.replay.replay import replays_models
from pallas.mcp_client.library_hooks import Hook

_NO_KEY: Final = "none"


def _without_key(original: Any) -> Any:
    def get_optional_api_key(provider_name: str, config: Any) -> Any:
        found = original(provider_name, config)
        return _NO_KEY if found is None and replays_models() else found

    return get_optional_api_key


KEYS: Final = Hook(
    "replay.keys", ProviderKeyManager, "get_optional_api_key", ("provider_name", "config"), _without_key
)
