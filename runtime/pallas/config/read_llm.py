"""``llm:``: the models that handlers may ask, over several backends (SPEC 5.1)."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, get_args
from urllib.parse import urlsplit

from .kinds import BackendConfig, LlmRouting, LlmStrategy
from .network import url_problem
from .notes import allowed, did_you_mean
from .section import Section
from .tree import Items, Leaf, unset_in
from .upstream import PROVIDERS

LLM_ROUTING_KEYS: Final = (
    "strategy", "retries", "retry_base_delay", "retry_max_delay", "max_tokens_per_thread", "backends",
)  # fmt: skip
BACKEND_KEYS: Final = (
    "provider", "id", "api_key_env", "api_key", "base_url", "priority", "rate_limit_tpm", "max_concurrent",
    "timeout", "supported_models",
)  # fmt: skip
STRATEGIES: Final[tuple[LlmStrategy, ...]] = get_args(LlmStrategy)
ALIASES: Final[Mapping[str, str]] = {"ollama": "generic"}
"""Names of other programs for providers that fast-agent calls otherwise."""
MAX_BACKENDS: Final = 50
MAX_MODELS: Final = 100
MAX_MODEL: Final = 200
MAX_TOKENS: Final = 1_000_000_000
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def read_llm(top: Section, variables: Mapping[str, str]) -> LlmRouting:
    """``llm:`` at the top; what is not given is as in ``LlmRouting``. ``variables`` hold the keys by name."""
    inner = top.section("llm")
    return LlmRouting() if inner is None else read_routing(inner, variables)


def read_routing(section: Section, variables: Mapping[str, str]) -> LlmRouting:
    """The mapping under ``llm:``."""
    section.only(LLM_ROUTING_KEYS)
    default = LlmRouting()
    base = _number(section, "retry_base_delay", 0, 3_600, default.retry_base_delay)
    most = _number(section, "retry_max_delay", 0, 3_600, max(default.retry_max_delay, base))
    if most < base:
        section.error(
            "retry_max_delay", f"is less than retry_base_delay ({base:g})", f"allowed: {base:g} to 3600"
        )
    return LlmRouting(
        strategy=_strategy(section),
        retries=_integer(section, "retries", 0, 20, default.retries),
        retry_base_delay=base,
        retry_max_delay=most,
        backends=read_backends(section, "backends", variables),
        max_tokens_per_thread=_integer(
            section, "max_tokens_per_thread", 0, MAX_TOKENS, default.max_tokens_per_thread
        ),
    )


def read_backends(section: Section, key: str, variables: Mapping[str, str]) -> tuple[BackendConfig, ...]:
    """The list under ``key``, each with an id of its own: the one given, else the provider's name, numbered
    from the second on."""
    items = section.table.get(key)
    if items is None or (isinstance(items, Leaf) and items.value is None):
        return ()
    if not isinstance(items, Items):
        section.texts(key, "a list of entries with `provider`")
        return ()
    if len(items.items) > MAX_BACKENDS:
        section.error(key, f"has {len(items.items)} entries", f"allowed: at most {MAX_BACKENDS}")
    inners = [
        inner
        for number, node in enumerate(items.items[:MAX_BACKENDS])
        if (inner := section.section_of(node, f"{section.key(key)}[{number}]", node.where)) is not None
    ]
    given: dict[str, Section] = {}
    names: list[str | None] = []
    for inner in inners:
        name = inner.text("id", check=_id_problem)
        if name is not None and name in given:
            line = given[name].place("id").line
            inner.error("id", f"{name} is given twice, first on line {line}", "give each its own")
        if name is not None:
            given.setdefault(name, inner)
        names.append(name)
    taken = set(given)
    found: list[BackendConfig] = []
    for inner, name in zip(inners, names, strict=True):
        backend = _backend(inner, name, taken, variables)
        if backend is not None:
            found.append(backend)
            taken.add(backend.id)
    return tuple(found)


def _backend(
    section: Section, name: str | None, taken: Iterable[str], variables: Mapping[str, str]
) -> BackendConfig | None:
    section.only(BACKEND_KEYS)
    default = BackendConfig("", "")
    said = section.text("provider") if section.need("provider", "openai") else None
    provider = ALIASES.get(said, said) if said is not None else None
    if said is not None and provider not in PROVIDERS:
        known = sorted(PROVIDERS | ALIASES.keys())
        section.error(
            "provider",
            f"{said} is not a provider of fast-agent",
            did_you_mean(said, known),
            allowed(known),
        )
        provider = None
    identity = name or _free(said or "", taken)
    config = BackendConfig(
        id=identity,
        provider=provider or "",
        supported_models=_models(section),
        priority=_integer(section, "priority", 0, 1_000_000, default.priority),
        rate_limit_tpm=_integer(section, "rate_limit_tpm", 0, MAX_TOKENS, default.rate_limit_tpm),
        max_concurrent=_integer(section, "max_concurrent", 1, 10_000, default.max_concurrent),
        timeout=_number(section, "timeout", 0.1, 3_600, default.timeout),
        base_url=_base_url(section, said or ""),
        api_key=_api_key(section, identity, variables),
        where=section.where,
    )
    return config if provider else None


def _free(name: str, taken: Iterable[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    return found


def _strategy(section: Section) -> LlmStrategy:
    said = section.text("strategy")
    if said is None:
        return "failover"
    plain = said.lower().replace("_", "-")
    for each in STRATEGIES:
        if each == plain:
            return each
    section.error("strategy", f"unknown value {said}", allowed(STRATEGIES), did_you_mean(plain, STRATEGIES))
    return "failover"


def _base_url(section: Section, said: str) -> str:
    """Where the provider is. It may hold a password: what is wrong is said without repeating any of it."""
    quiet = Section(section.table, section.path, section.where, section.notes, echo=False)
    url = (quiet.text("base_url", check=url_problem) or "").rstrip("/")
    # What is called ollama speaks OpenAI's protocol below this path alone.
    return f"{url}/v1" if url and said == "ollama" and not urlsplit(url).path else url


def _api_key(section: Section, identity: str, variables: Mapping[str, str]) -> str:
    """The key, never repeated; empty for the project's own, which also stands in for one that is not set."""
    if "api_key" in section and "api_key_env" in section:
        section.error("api_key", "is given beside api_key_env", "allowed: one of them")
    name = section.text("api_key_env", check=_variable_problem)
    if name is not None and not variables.get(name):
        _warn_unset(section, "api_key_env", identity, name)
    node = section.table.get("api_key")
    if node is None or (isinstance(node, Leaf) and node.value is None):
        return variables.get(name, "") if name is not None else ""
    if unset := unset_in(node):
        for each in unset:
            _warn_unset(section, "api_key", identity, each)
        return ""
    quiet = Section(section.table, section.path, section.where, section.notes, echo=False)
    key = quiet.text("api_key") or ""
    if isinstance(node, Leaf) and key and not node.expanded:
        section.warn("api_key", "is a key in a file that others are shown", "write api_key: ${VARIABLE}")
    return key


def _warn_unset(section: Section, key: str, identity: str, variable: str) -> None:
    section.warn(
        key,
        f"backend {identity} needs {variable}, which is not set",
        f"set {variable} in the environment or in .env; until then it has the project's own key, if any",
    )


def _models(section: Section) -> tuple[str, ...]:
    given = section.texts("supported_models", "[gpt-4o, gpt-4.1]")
    if len(given) > MAX_MODELS:
        section.error("supported_models", f"has {len(given)} entries", f"allowed: at most {MAX_MODELS}")
    for text, where in given:
        if not text.strip() or len(text) > MAX_MODEL or any(letter.isspace() for letter in text.strip()):
            section.error(
                "supported_models",
                "has an entry that is no name of a model",
                "write how the names begin, such as gpt-4o",
                where=where,
            )
    return tuple(dict.fromkeys(text.strip() for text, _ in given))


def _id_problem(text: str) -> str | None:
    if _ID.fullmatch(text):
        return None
    return "is not an id; allowed: letters, digits and . _ - after the first, at most 100"


def _variable_problem(text: str) -> str | None:
    if _VARIABLE.fullmatch(text):
        return None
    # It may be the key itself: it is not repeated.
    return "is not the name of a variable; write api_key_env: OPENAI_API_KEY"


def _integer(section: Section, key: str, low: int, high: int, default: int) -> int:
    given = section.integer(key, low, high)
    return default if given is None else given


def _number(section: Section, key: str, low: float, high: float, default: float) -> float:
    given = section.number(key, low, high)
    return default if given is None else given
