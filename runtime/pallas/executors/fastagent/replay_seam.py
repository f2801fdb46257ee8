"""What a replay changes in fast-agent: servers are those of a recording, and models need no key.

Agents of the fleet that are servers of others are called at the address that they have in the replay. Outside
of a replay nothing changes. ``tests/contract/test_hooks.py`` fails when a wrapped function changes.
"""

from typing import Any, Final

from fast_agent.llm.provider_key_manager import ProviderKeyManager
from fast_agent.mcp import client_gateway

from pallas.executors.replay.replay import current_replay, replays_models
from pallas.mcp_client.library_hooks import Hook

_NO_KEY: Final = "none"
_PARAMETERS: Final = ("server_name", "config", "oauth_mode", "oauth_active", "hooks")


def _recorded(original: Any) -> Any:
    def create_transport(
        *, server_name: str, config: Any, oauth_mode: Any, oauth_active: bool, hooks: Any
    ) -> Any:
        if (replay := current_replay()) is not None:
            if (url := replay.plan.agents_at.get(server_name)) is not None:
                config = config.model_copy(update={"url": url})
            elif not replay.plan.is_live(server_name):
                # Imports the SDK's server, which other fleets may not need.
                from pallas.executors.replay.recorded_servers import recorded_server

                return recorded_server(replay, server_name)
        return original(
            server_name=server_name,
            config=config,
            oauth_mode=oauth_mode,
            oauth_active=oauth_active,
            hooks=hooks,
        )

    return create_transport


def _without_key(original: Any) -> Any:
    def get_optional_api_key(provider_name: str, config: Any) -> Any:
        found = original(provider_name, config)
        return _NO_KEY if found is None and replays_models() else found

    return get_optional_api_key


SERVERS: Final = Hook("replay.servers", client_gateway, "_create_transport", _PARAMETERS, _recorded)
KEYS: Final = Hook(
    "replay.keys", ProviderKeyManager, "get_optional_api_key", ("provider_name", "config"), _without_key
)
