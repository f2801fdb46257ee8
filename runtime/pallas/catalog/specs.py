"""The specs of agents, LLMs, secrets and projects as an author writes them.

Keys are camelCase; snake_case is accepted. A spec is partial: an absent key leaves the stored value, null
clears it.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from pallas.config.notes import nearest
from pallas.model import Fault, Params, ResourceKind
from pallas.model.params import PER_CALL_KEYS
from pallas.model.redaction import is_sensitive
from pallas.safe_text import one_line

from .secret_references import references_in
from .spec_fields import (
    MAX_ITEMS,
    MAX_VALUE,
    SECRET_REFERENCE,
    Count,
    HeaderName,
    HeaderValue,
    JsonObject,
    KeyName,
    Line,
    ModelName,
    Reference,
    Repeats,
    ServerName,
    Text,
    Url,
    named,
    unknown,
    wrong,
)

LlmType = Literal["openai", "anthropic", "generic", "responses", "openrouter", "deepseek", "groq", "xai"]
NEEDS_URL: Final = frozenset({"generic"})
"""LLM types without a default address."""


_LLM_TYPES: Final = get_args(LlmType)
# Other names of providers, and servers that speak OpenAI's chat completions.
_COMPATIBLE: Final = frozenset(
    {
        "huggingface", "litellm", "llama.cpp", "llamacpp", "lmstudio", "localai", "ollama",
        "openai-compatible", "sglang", "tgi", "vllm",
    }
)  # fmt: skip
_CALLED: Final = {"claude": "anthropic", "chatgpt": "openai", "gpt": "openai", "grok": "xai"}


def _llm_type(value: Any) -> Any:
    """Refuse an unknown type, and list the known ones."""
    if not isinstance(value, str) or value in _LLM_TYPES:
        return value
    word = value.strip().casefold()
    if word in _COMPATIBLE:
        hint = "use generic, for any server that speaks OpenAI's chat completions"
    else:
        near = _CALLED.get(word) or nearest(word, _LLM_TYPES)
        hint = f"did you mean {near}?" if near else "generic is any server that speaks chat completions"
    known = ", ".join(_LLM_TYPES)
    raise ValueError(f"there is no type {one_line(value, 60)!r}; {hint}; known: {known}")


class _Spec(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True, strict=True
    )

    def given(self) -> dict[str, Any]:
        """The keys that were written, in camelCase, as plain JSON values."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class SecretKeyRef(_Spec):
    """A value of a secret."""

    name: str
    key: KeyName


class AgentSpec(_Spec):
    """An agent. ``defaultParams`` null means that none are set; its limits are those of agents.yaml."""

    description: Line | None = None
    system_prompt: Text | None = None
    llm: Reference | None = None
    project: Reference | None = None
    proxy_model_name: Line | None = None
    default_params: JsonObject | None = None
    max_iterations: Count | None = None
    loop_repeat_threshold: Repeats | None = None
    extras: JsonObject | None = None


_ALSO_CALLED: Final = {"llmId": "llm", "projectId": "project"}
"""Other names of keys of an agent."""


class LlmSpec(_Spec):
    """A model at a provider. ``maxOutputTokens`` limits one response.

    ``probe`` false skips the question to the provider; it is not stored.
    """

    type: Annotated[LlmType, BeforeValidator(_llm_type)] | None = None
    model: ModelName | None = None
    url: Url | None = None
    api_key_ref: Annotated[SecretKeyRef, SECRET_REFERENCE] | None = None
    description: Line | None = None
    default_params: JsonObject | None = None
    max_output_tokens: Count | None = None
    extra: JsonObject | None = None
    probe: bool | None = Field(default=None, exclude=True)


Data = dict[KeyName, Annotated[str, Field(max_length=MAX_VALUE)] | None]


class SecretSpec(_Spec):
    """A secret. ``data`` is write-only; ``keys`` is read-only, and has no effect when written."""

    data: Annotated[Data, Field(max_length=MAX_ITEMS)] | None = Field(default=None, repr=False)
    keys: list[str] | None = None


class ServerSpec(_Spec):
    """A server of the folder's configuration by name, or, with ``url``, one that only this project has.

    Values of its headers may refer to secrets.
    """

    name: ServerName
    url: Url | None = None
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict, max_length=32)

    @model_validator(mode="after")
    def _check_headers(self) -> "ServerSpec":
        if self.headers and not self.url:
            raise ValueError(
                "has headers and no url; the folder's own servers have theirs in its configuration"
            )
        for name, value in self.headers.items():
            if is_sensitive(name) and value and not references_in(value):
                raise ValueError(
                    f"header {name} would be visible to everyone; keep the value in a secret and write "
                    "${secret:NAME/KEY}"
                )
        return self


class PromptSpec(_Spec):
    """A text in the instruction of every agent of the project; highest ``priority`` first."""

    text: Text
    name: Line = ""
    priority: int = Field(default=0, ge=-1_000_000, le=1_000_000)


class ProjectSpec(_Spec):
    """Servers and prompts that agents share. A plain text is a server's name, or a prompt."""

    description: Line | None = None
    servers: (
        Annotated[list[Annotated[ServerSpec, BeforeValidator(named("name"))]], Field(max_length=MAX_ITEMS)]
        | None
    ) = None
    prompts: (
        Annotated[list[Annotated[PromptSpec, BeforeValidator(named("text"))]], Field(max_length=MAX_ITEMS)]
        | None
    ) = None


Spec = AgentSpec | LlmSpec | SecretSpec | ProjectSpec
SPECS: Final[Mapping[ResourceKind, type[AgentSpec | LlmSpec | SecretSpec | ProjectSpec]]] = {
    "agent": AgentSpec,
    "llm": LlmSpec,
    "secret": SecretSpec,
    "project": ProjectSpec,
}


def read_spec(kind: ResourceKind, given: Any, *, at: str = "") -> Spec:
    """Parse a spec, and check it as far as that is possible without other resources.

    Raises Fault (PROTOCOL) whose ``data["key"]`` is the dotted path of the first mistake, in the author's
    spelling and below ``at``; the message says how to fix it.
    """
    if not isinstance(given, Mapping):
        raise wrong(
            at or "spec", f"must be an object with the keys of {_a(kind)}: {', '.join(_keys(SPECS[kind]))}"
        )
    spelt, key_spellings = _camel(SPECS[kind], given, at)
    try:
        spec = SPECS[kind].model_validate(spelt)
    except ValidationError as error:
        raise _fault(SPECS[kind], error, key_spellings, at) from None
    for name, value in spec:
        if value is None and name in spec.model_fields_set and (kind, name) in _NEVER_NULL:
            raise wrong(
                _path(at, key_spellings.get(to_camel(name), name)),
                "cannot be cleared; leave it out, or give it",
            )
    for key in ("default_params",):
        if isinstance(params := getattr(spec, key, None), dict):
            read_params(params, _path(at, key_spellings.get(to_camel(key), key)))
    return spec


def read_params(given: Mapping[str, Any], at: str) -> Params:
    """Parse default parameters (unknown keys go below ``extra``).

    Raises Fault (PROTOCOL) as ``read_spec``.
    """
    try:
        return Params.read(given, strict=False, refused=PER_CALL_KEYS)
    except Fault as fault:
        key = f"{at}.{fault.data.get('key', '')}".rstrip(".")
        raise Fault(fault.type, f"{at}.{fault.message}", data={**fault.data, "key": key}) from None


_NEVER_NULL: Final = frozenset({("llm", "type"), ("llm", "model")})


def _a(kind: ResourceKind) -> str:
    return f"an {kind}" if kind in ("agent", "llm") else f"a {kind}"


def _keys(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _camel(
    model: type[BaseModel], given: Mapping[Any, Any], at: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """``given`` with camelCase keys, and the author's spelling of each."""
    known, spelt, key_spellings = _keys(model), dict[str, Any](), dict[str, str]()
    for name, value in given.items():
        key = to_camel(name) if isinstance(name, str) and "_" in name else str(name)
        if model is AgentSpec:
            key = _ALSO_CALLED.get(key, key)
        if key not in known:
            # Beside the keys of a spec, a body over REST has these.
            raise unknown(_path(at, str(name)), key, known if at else (*known, "name", "version"))
        if key in spelt:
            raise wrong(_path(at, str(name)), f"is given twice, as {key_spellings[key]} too; leave one out")
        spelt[key], key_spellings[key] = value, str(name)
    return spelt, key_spellings


def _path(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key


def _fault(
    model: type[BaseModel], error: ValidationError, key_spellings: Mapping[str, str], at: str
) -> Fault:
    """The Fault for the first of the mistakes that pydantic found."""
    found = error.errors(include_url=False, include_input=False)
    # A misspelt key is also a missing one. Report the misspelling, which says how to fix it.
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    parts = [str(part) for part in first["loc"] if str(part) != "[key]"]
    if parts:
        parts[0] = key_spellings.get(parts[0], parts[0])
    path = _path(at, ".".join(parts)) or "spec"
    if first["type"] == "extra_forbidden":
        return unknown(path, parts[-1], _siblings(model, tuple(map(str, first["loc"]))[:-1]))
    if first["type"] == "missing":
        return wrong(path, "is missing")
    return wrong(path, one_line(first["msg"].removeprefix("Value error, "), 300))


def _siblings(model: type[BaseModel], loc: tuple[str, ...]) -> Iterator[str]:
    """Yield the known keys at a place of a spec."""
    inner: Mapping[str, type[BaseModel]] = {
        "apiKeyRef": SecretKeyRef,
        "servers": ServerSpec,
        "prompts": PromptSpec,
    }
    yield from _keys(inner[loc[0]] if loc and loc[0] in inner else model)
