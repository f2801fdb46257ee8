"""``llm:``: the models that handlers may ask, over several backends."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, get_args
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, WithJsonSchema

from .field_types import VARIABLE, Loose, Maybe, Secret, TextRule
from .file_model import FileModel
from .kinds import BackendConfig, LlmRouting, LlmStrategy
from .network import url_problem
from .notes import allowed, did_you_mean
from .section import because, filled
from .tree import Leaf, unset_in
from .upstream import PROVIDERS

ALIASES: Final[Mapping[str, str]] = {"ollama": "generic"}
"""Names of other programs for providers that fast-agent calls otherwise."""
MAX_MODEL: Final = 200
MAX_TOKENS: Final = 1_000_000_000
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_STRATEGIES: Final[tuple[str, ...]] = get_args(LlmStrategy)
# Editors know no flag for this.
_ANY_CASE: Final = "|".join(
    "^" + "".join("[-_]" if char == "-" else f"[{char}{char.upper()}]" for char in each) + "$"
    for each in _STRATEGIES
)


def _provider_problem(text: str) -> str | None:
    if ALIASES.get(text, text) in PROVIDERS:
        return None
    known = sorted(PROVIDERS | ALIASES.keys())
    hints = [did_you_mean(text, known), allowed(known)]
    return f"{text} is not a provider of fast-agent; {'; '.join(hint for hint in hints if hint)}"


def _id_problem(text: str) -> str | None:
    if _ID.fullmatch(text):
        return None
    return "is not an id; allowed: letters, digits and . _ - after the first, at most 100"


def _variable_problem(text: str) -> str | None:
    if VARIABLE.fullmatch(text):
        return None
    # It may be the key itself: it is not repeated.
    return "is not the name of a variable; write api_key_env: OPENAI_API_KEY"


def _dashed(value: Any) -> Any:
    return value.strip().lower().replace("_", "-") if isinstance(value, str) else value


class BackendEntry(FileModel):
    """A model endpoint that answers the questions of handlers."""

    provider: Annotated[str, TextRule(_provider_problem), Field(examples=["openai"])]
    """The provider, by its name in fast-agent; ``ollama`` stands for ``generic``."""
    id: Maybe[Annotated[str, TextRule(_id_problem, pattern=f"^{_ID.pattern}$")]] = None
    """Its name in metrics and events; without it the provider's name with a number."""
    api_key_env: Maybe[Annotated[str, TextRule(_variable_problem, pattern=f"^{VARIABLE.pattern}$")]] = None
    """The variable that holds the key, of the environment or of ``.env``."""
    api_key: Annotated[str | None, Secret(), Field(examples=["${OPENAI_API_KEY}"])] = None
    """The key, as ``${VARIABLE}``; not with ``api_key_env``. Without either the project's own key is used."""
    base_url: Maybe[Annotated[str, TextRule(url_problem), Secret()]] = None
    """Its http or https URL; without it the provider's own."""
    priority: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    """The backend with the lowest number is asked first."""
    rate_limit_tpm: Annotated[int, Field(ge=0, le=MAX_TOKENS)] = 100_000
    """Tokens a minute; 0 for any."""
    max_concurrent: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Requests at a time."""
    timeout: Annotated[float, Field(ge=0.1, le=3_600)] = 120.0
    """Seconds for one request."""
    supported_models: Annotated[
        tuple[Loose, ...] | None, Field(max_length=100, examples=[["gpt-4o", "gpt-4.1"]])
    ] = None
    """The beginnings of the names of its models; ``*`` is any. Without it the models of its provider."""


class LlmSection(FileModel):
    """The models that typed handlers may ask. Without backends they ask the project's ``default_model``."""

    strategy: Annotated[
        LlmStrategy,
        BeforeValidator(_dashed),
        WithJsonSchema({"anyOf": [{"enum": list(_STRATEGIES)}, {"pattern": _ANY_CASE}]}),
    ] = "failover"
    """Which backend is asked: by priority, each in turn, or the one with the least to do."""
    retries: Annotated[int, Field(ge=0, le=20)] = 3
    """Further attempts when all backends failed."""
    retry_base_delay: Annotated[float, Field(ge=0, le=3_600)] = 1.0
    """Seconds until the first further attempt, doubled with each."""
    retry_max_delay: Annotated[float, Field(ge=0, le=3_600)] = 60.0
    """Seconds at most until a further attempt, not less than ``retry_base_delay``."""
    max_tokens_per_thread: Annotated[int, Field(ge=0, le=MAX_TOKENS)] = 100_000
    """Tokens that one thread may use; 0 for any."""
    backends: Annotated[
        tuple[BackendEntry, ...] | None, Field(max_length=50, examples=[[{"provider": "openai"}]])
    ] = None
    """The backends that are asked."""


def routing_of(section: LlmSection | None, variables: Mapping[str, str]) -> LlmRouting:
    """``llm:`` as a value. ``variables`` hold the keys that it names."""
    if section is None:
        return LlmRouting()
    base, most = section.retry_base_delay, section.retry_max_delay
    if "retry_max_delay" not in section.at:
        most = max(most, base)
    elif most < base:
        section.at.error(
            "retry_max_delay", f"is less than retry_base_delay ({base:g})", f"allowed: {base:g} to 3600"
        )
    return LlmRouting(
        strategy=section.strategy,
        retries=section.retries,
        retry_base_delay=base,
        retry_max_delay=most,
        backends=backends_of(section.backends or (), variables),
        max_tokens_per_thread=section.max_tokens_per_thread,
    )


def backends_of(entries: Iterable[BackendEntry], variables: Mapping[str, str]) -> tuple[BackendConfig, ...]:
    """The backends, each with an id of its own: the one given, else the provider's name, numbered."""
    entries = tuple(entries)
    given: dict[str, BackendEntry] = {}
    for entry in entries:
        if entry.id is not None and (first := given.setdefault(entry.id, entry)) is not entry:
            line = first.at.place("id").line
            entry.at.error("id", f"{entry.id} is given twice, first on line {line}", "give each its own")
    taken = set(given)
    found: list[BackendConfig] = []
    for entry in entries:
        backend = _backend(entry, taken, variables)
        if entry.provider:  # None after a mistake
            found.append(backend)
            taken.add(backend.id)
    return tuple(found)


def _backend(entry: BackendEntry, taken: Iterable[str], variables: Mapping[str, str]) -> BackendConfig:
    provider = entry.provider or ""
    identity = entry.id or _free(provider, taken)
    return BackendConfig(
        id=identity,
        provider=ALIASES.get(provider, provider),
        supported_models=_models(entry),
        priority=entry.priority,
        rate_limit_tpm=entry.rate_limit_tpm,
        max_concurrent=entry.max_concurrent,
        timeout=entry.timeout,
        base_url=_base_url(entry),
        api_key=_api_key(entry, identity, variables),
        where=entry.at.where,
    )


def _free(name: str, taken: Iterable[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found


def _base_url(entry: BackendEntry) -> str:
    url = (entry.base_url or "").rstrip("/")
    # What is called ollama speaks OpenAI's protocol below this path alone.
    return f"{url}/v1" if url and entry.provider == "ollama" and not urlsplit(url).path else url


def _api_key(entry: BackendEntry, identity: str, variables: Mapping[str, str]) -> str:
    """The key, never repeated; empty for the project's own, which is also used for one that is not set."""
    section, name, node = entry.at, entry.api_key_env, entry.at.table.get("api_key")
    if node is not None and "api_key_env" in section:
        section.error("api_key", "is given beside api_key_env", "allowed: one of them")
    if name is not None and not variables.get(name):
        _warn_unset(entry, "api_key_env", identity, name)
    if entry.api_key is None or not isinstance(node, Leaf):
        return variables.get(name, "") if name is not None else ""
    if unset := unset_in(node):
        for each in unset:
            _warn_unset(entry, "api_key", identity, each)
        return ""
    key = entry.api_key.strip()
    if not key:
        section.error("api_key", "is empty" + because(node), filled(node))
    elif "\n" in key:
        section.error("api_key", "has several lines", "allowed: one line")
    elif not node.expanded:
        section.warn("api_key", "is a key in a file that others are shown", "write api_key: ${VARIABLE}")
    return key


def _warn_unset(entry: BackendEntry, key: str, identity: str, variable: str) -> None:
    if not identity:  # its provider was wrong, and it is never asked
        return
    entry.at.warn(
        key,
        f"backend {identity} needs {variable}, which is not set",
        f"set {variable} in the environment or in .env; until then it has the project's own key, if any",
    )


def _models(entry: BackendEntry) -> tuple[str, ...]:
    for text, where in entry.listed("supported_models"):
        if not text.strip() or len(text) > MAX_MODEL or any(letter.isspace() for letter in text.strip()):
            entry.at.error(
                "supported_models",
                "has an entry that is not the name of a model",
                "write how the names begin, such as gpt-4o",
                where=where,
            )
    return tuple(dict.fromkeys(text.strip() for text in entry.supported_models or ()))
