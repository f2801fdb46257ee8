"""Names that belong to fast-agent 0.10: listed here, so that a file is checked without importing it.

A contract test compares them with the installed version.
"""

from typing import Final

# fmt: off
PROVIDERS: Final = frozenset({
    "aliyun", "anthropic", "anthropic-vertex", "azure", "bedrock", "codexresponses", "copilot", "deepseek",
    "fast-agent", "generic", "google", "googleoai", "groq", "hf", "metaai", "moonshot", "openai",
    "openrouter", "openresponses", "responses", "tensorzero", "xai", "zai",
})
# Keys at the top of its configuration file, with the one that is ours: model_capabilities.
TOP_KEYS: Final = frozenset({
    "aliyun", "anthropic", "auto_sampling", "azure", "bedrock", "cards", "cli_model_override",
    "codexresponses", "commands", "compaction", "copilot", "deepseek", "default_environment",
    "default_model", "environments", "execution_engine", "generic", "git_aware", "google", "groq",
    "harness_app", "hf", "home", "llm_retries", "logger", "mcp", "mcp_timeline", "metaai",
    "model_capabilities", "model_references", "model_source", "moonshot", "openai", "openresponses",
    "openrouter", "otel", "plugins", "responses", "session_history", "session_history_window",
    "shell_execution", "skills", "tensorzero", "tui", "xai", "zai",
})
MCP_KEYS: Final = ("servers", "defaults", "client", "diagnostics")
# Keys of an entry under mcp.servers, the common ones first, with the one that is ours: forward_inbound_auth.
DOWNSTREAM_KEYS: Final = (
    "url", "command", "args", "env", "cwd", "headers", "auth", "forward_inbound_auth", "transport", "target",
    "access_token", "protocol_mode", "read_timeout_seconds", "http_timeout_seconds",
    "http_read_timeout_seconds", "read_transport_sse_timeout_seconds", "ping_interval_seconds",
    "max_missed_pings", "load_on_start", "include_instructions", "reconnect_on_disconnect", "roots",
    "sampling", "elicitation", "implementation", "management", "connector_id", "defer_loading", "name",
    "description",
)
# Keys under auth: of such an entry; x_forward is one that fast-agent carries along without reading it.
AUTH_KEYS: Final = (
    "oauth", "forward", "redirect_port", "redirect_path", "scope", "persist", "client_metadata_url",
    "x_forward",
)
# What an instruction may hold between {{ and }}, alone, and before a colon.
PLACEHOLDERS: Final = (
    "agentCardDir", "agentCardPath", "agentInternalResources", "agentName", "agentSkills", "agentType",
    "currentDate", "env", "hostPlatform", "modelName", "modelProvider", "modelReferences", "pythonVer",
    "serverInstructions", "workspaceRoot",
)
INCLUDES: Final = ("file", "file_silent", "internal", "url")
_KEY_VARIABLES: Final = {
    "anthropic-vertex": "", "codexresponses": "CODEX_API_KEY", "hf": "HF_TOKEN", "metaai": "META_AI_API_KEY",
    "openresponses": "OPENRESPONSES_API_KEY", "responses": "OPENAI_API_KEY",
}
# fmt: on


def key_variable(provider: str) -> str:
    """The environment variable that fast-agent takes a provider's key from, empty for none."""
    return _KEY_VARIABLES.get(provider, f"{provider.upper()}_API_KEY")
