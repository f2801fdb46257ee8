"""Where a model provider answers, with which key, and how it is asked whether it has a model.

The addresses and names of variables are fast-agent's; a contract test compares them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

from pallas.config import Project
from pallas.safe_text import one_line

from .cloud_account import needs_account

OPENAI_URL: Final = "https://api.openai.com/v1"
ANTHROPIC_URL: Final = "https://api.anthropic.com"
GOOGLE_URL: Final = "https://generativelanguage.googleapis.com"
ANTHROPIC_PROBE_MODEL: Final = "claude-sonnet-4-5"
AZURE_API_VERSION: Final = "2024-10-21"
_ANTHROPIC_VERSION: Final = "2023-06-01"
_NO_KEY: Final = "<your-api-key-here>"
"""What fast-agent's template says instead of a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderApi:
    """What is known of a provider. Its key is in the block of its name, or of ``also``, or in ``variable``.

    ``url`` is empty if each account has its own address. It may be in ``url_variable``, or in the block
    ``url_block`` in place of its own. ``lists_all``: a model that it does not list does not exist.
    """

    url: str
    variable: str
    style: Literal["anthropic", "azure", "google", "openai", "tensorzero"] = "openai"
    url_variable: str = ""
    url_block: str = ""
    also: str = ""
    key: str = ""
    """The key that is sent if there is none."""
    needs_key: bool = True
    lists_all: bool = True


_OPENAI: Final = ProviderApi(url=OPENAI_URL, variable="OPENAI_API_KEY", url_variable="OPENAI_BASE_URL")

PROVIDERS: Final[Mapping[str, ProviderApi]] = {
    "anthropic": ProviderApi(url=ANTHROPIC_URL, variable="ANTHROPIC_API_KEY", style="anthropic"),
    "openai": _OPENAI,
    "responses": ProviderApi(
        url=OPENAI_URL, variable="OPENAI_API_KEY", url_variable="OPENAI_BASE_URL", also="openai"
    ),
    "google": ProviderApi(url=GOOGLE_URL, variable="GOOGLE_API_KEY", style="google"),
    "generic": ProviderApi(
        url="http://localhost:11434/v1",
        variable="GENERIC_API_KEY",
        url_variable="GENERIC_BASE_URL",
        key="ollama",
        needs_key=False,
    ),
    "groq": ProviderApi(url="https://api.groq.com/openai/v1", variable="GROQ_API_KEY"),
    "deepseek": ProviderApi(url="https://api.deepseek.com", variable="DEEPSEEK_API_KEY"),
    "moonshot": ProviderApi(url="https://api.moonshot.ai/v1", variable="MOONSHOT_API_KEY"),
    "openrouter": ProviderApi(
        url="https://openrouter.ai/api/v1", variable="OPENROUTER_API_KEY", url_variable="OPENROUTER_BASE_URL"
    ),
    "aliyun": ProviderApi(
        url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        variable="ALIYUN_API_KEY",
        lists_all=False,
    ),
    "zai": ProviderApi(url="https://api.z.ai/api/paas/v4", variable="ZAI_API_KEY", lists_all=False),
    # Keys of these may also be where their own tools keep them.
    "hf": ProviderApi(
        url="https://router.huggingface.co/v1", variable="HF_TOKEN", needs_key=False, lists_all=False
    ),
    "xai": ProviderApi(
        url="https://api.x.ai/v1", variable="XAI_API_KEY", url_variable="XAI_BASE_URL", needs_key=False
    ),
    "metaai": ProviderApi(
        url="https://api.meta.ai/v1",
        variable="META_AI_API_KEY",
        url_variable="META_AI_BASE_URL",
        lists_all=False,
    ),
    "openresponses": ProviderApi(
        url="http://localhost:8080/v1",
        variable="OPENRESPONSES_API_KEY",
        url_variable="OPENRESPONSES_BASE_URL",
        needs_key=False,
        lists_all=False,
    ),
    "googleoai": ProviderApi(
        url=f"{GOOGLE_URL}/v1beta/openai", variable="GOOGLEOAI_API_KEY", url_block="google", lists_all=False
    ),
    # Neither lists what is called: deployments, and functions of the gateway.
    "azure": ProviderApi(url="", variable="AZURE_API_KEY", style="azure", lists_all=False),
    "tensorzero": ProviderApi(
        url="http://localhost:3000", variable="TENSORZERO_API_KEY", style="tensorzero", lists_all=False
    ),
}
"""The providers that have an address for such questions; for the others see ``cloud_account``."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A provider's address and credential."""

    api: ProviderApi
    base_url: str
    key: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    api_version: str = AZURE_API_VERSION

    @property
    def lacks_key(self) -> bool:
        """Whether a key is needed and there is none."""
        return self.api.needs_key and not self.key

    @property
    def can_be_asked(self) -> bool:
        """Whether there is an address, and the key that it needs."""
        return bool(self.base_url) and not self.lacks_key

    @property
    def host(self) -> str:
        """Host and port, without credentials."""
        try:
            host = urlsplit(self.base_url).netloc.rpartition("@")[2]
        except ValueError:
            host = ""
        return one_line(host, 100) or "its address"

    @property
    def lists(self) -> bool:
        """Whether one answer lists all models; otherwise each is asked for."""
        return self.api.style in ("azure", "openai", "tensorzero")

    def request(self, model: str) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The URL and the headers that ask whether it accepts the key and has ``model``."""
        match self.api.style:
            case "anthropic":
                base = self.base_url.removesuffix("/v1")
                named = quote(model or ANTHROPIC_PROBE_MODEL, safe="")
                own = (("x-api-key", self.key), ("anthropic-version", _ANTHROPIC_VERSION))
                return f"{base}/v1/models/{named}", (*own, *self.headers)
            case "google":
                named = f"/{quote(model.removeprefix('models/'), safe='')}" if model else "?pageSize=1"
                return f"{self.base_url}/v1beta/models{named}", (("x-goog-api-key", self.key), *self.headers)
            case "azure":
                query = f"api-version={quote(self.api_version, safe='')}"
                return f"{self.base_url}/openai/models?{query}", (("api-key", self.key), *self.headers)
            case "tensorzero":
                return f"{self.base_url.removesuffix('/openai/v1')}/health", ()
            case _:
                key = (("Authorization", f"Bearer {self.key}"),) if self.key else ()
                return f"{self.base_url}/models", (*key, *self.headers)


def key_place(project: Project, provider: str) -> str:
    """Where the key of ``provider`` is written: file and variable, for messages."""
    api = PROVIDERS.get(provider)
    for name in (provider, api.also if api else ""):
        if (key := project.keys.get(name)) is not None and key.is_set:
            written = f"{name}.api_key in {key.where}"
            return f"{key.variable} in .env or the environment ({written})" if key.variable else written
    return f"{api.variable} in .env or the environment" if api else f"the account of {provider}"


def endpoint_of(
    settings: Mapping[str, Any], provider: str, environ: Mapping[str, str], *, from_environ: bool = True
) -> Endpoint | None:
    """The endpoint that fast-agent uses for ``provider``; None for one that needs an account instead.

    The key comes from the configuration or, ``from_environ``, from the environment.
    """
    api = PROVIDERS.get(provider)
    if api is None or needs_account(settings, provider):
        return None
    blocks = list(_blocks(settings, (provider, api.also)))
    key = next((key for block in blocks if (key := _text(block, "api_key")) and key != _NO_KEY), "")
    if not key and from_environ:
        key = environ.get(api.variable, "").strip()
    of_url = list(_blocks(settings, (api.url_block,))) if api.url_block else blocks
    url = next((url for block in of_url if (url := _text(block, "base_url"))), "")
    url = url or environ.get(api.url_variable, "") or api.url or _of_azure(blocks)
    version = next((text for block in blocks if (text := _text(block, "api_version"))), AZURE_API_VERSION)
    headers = next((given for block in blocks if (given := block.get("default_headers"))), None)
    return Endpoint(api, url.rstrip("/"), key or api.key, _pairs(headers), version)


def _blocks(settings: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    for name in names:
        if isinstance(block := settings.get(name), Mapping):
            yield block


def _of_azure(blocks: list[Mapping[str, Any]]) -> str:
    name = next((name for block in blocks if (name := _text(block, "resource_name"))), "")
    return f"https://{name}.openai.azure.com" if name else ""


def _text(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key)
    return value.strip() if isinstance(value, str) else ""


def _pairs(headers: Any) -> tuple[tuple[str, str], ...]:
    found = headers.items() if isinstance(headers, Mapping) else ()
    return tuple((str(name), value) for name, value in found if isinstance(value, str))
