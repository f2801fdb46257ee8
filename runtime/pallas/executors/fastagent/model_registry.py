"""What fast-agent knows of models: whether it takes a name, and its limits.

Models that it does not know are registered, with the project's declarations or defaults.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fast_agent.core.exceptions import ModelConfigError
from fast_agent.core.model_resolution import resolve_model_spec
from fast_agent.llm.model_database import ModelDatabase, ModelParameters
from fast_agent.llm.model_factory import ModelConfig, ModelFactory
from fast_agent.llm.model_overlays import load_model_overlay_registry
from fast_agent.llm.provider_key_manager import ProviderKeyManager
from fast_agent.llm.provider_types import Provider

from pallas.config import AgentConfig, Capabilities, Project
from pallas.config.notes import nearest
from pallas.safe_text import one_line

_UNKNOWN: Final = "Unknown model or provider"
_OTHER_NAMES: Final[Mapping[str, str]] = {
    "claude": "anthropic",
    "gemini": "google",
    "gpt": "openai",
    "grok": "xai",
    "huggingface": "hf",
    "llamacpp": "generic",
    "lmstudio": "generic",
    "ollama": "generic",
    "vllm": "generic",
}
"""What users write for a provider, and what fast-agent calls it."""
_FAMILIES: Final[Mapping[str, str]] = {
    "claude-": "anthropic",
    "deepseek-": "deepseek",
    "gemini-": "google",
    "gpt-": "openai",
    "grok-": "xai",
}
"""How the names of models begin that one provider has."""
_SUFFIX: Final = "Reasoning suffix syntax"


def register(model: str, capabilities: Capabilities) -> None:
    """Register ``model`` (no provider prefix) with fast-agent; a model it knows is left alone (PR-13).

    Agents may declare different capabilities for one name, and fast-agent has one entry for it in the whole
    process. So nobody's model has vision by its name: ``media_seam`` gives it to the agents that declare it.
    """
    if not _ours(model):
        return
    ModelDatabase.register_runtime_model_params(
        model,
        ModelParameters(
            context_window=capabilities.context_window,
            max_output_tokens=capabilities.max_output_tokens,
            tokenizes=ModelDatabase.TEXT_ONLY,
        ),
    )


def declared(config: AgentConfig) -> Capabilities:
    """Return the capabilities that an agent declares for its model, else the defaults."""
    return config.model_capabilities or Capabilities()


def known(model: str) -> bool:
    """Return whether fast-agent itself knows a model, by its name without a provider."""
    return bool(model) and not _ours(model)


def provider_of(llm: Any) -> str:
    """Return fast-agent's name for the provider of a model object; empty if it is unknown."""
    return str(getattr(getattr(llm, "provider", None), "config_name", ""))


def parsed(spec: str, project: Project) -> ModelConfig:
    """Parse a model name from code or configuration as fast-agent does; an empty one is the default.

    Aliases, references (``$group.name``) and the project's model overlays are resolved. Raises fast-agent's
    error for an invalid name.
    """
    overlays = load_model_overlay_registry(start_path=project.root)
    presets = {**ModelFactory.MODEL_PRESETS, **overlays.runtime_presets()}
    return ModelFactory.parse_model_string(referred(spec, project), presets)


def referred(spec: str, project: Project) -> str:
    """Return the model name that ``spec`` refers to; an empty one is the project's default.

    A ``$group.name`` that leads nowhere is the default too, as for fast-agent. Empty if there is none.
    """
    default = f"{project.provider}.{project.model}" if project.provider else project.model
    references = project.settings.get("model_references")
    found = resolve_model_spec(
        None,
        model=spec or None,
        default_model=default or None,
        model_references=references if isinstance(references, Mapping) else {},
    )
    return found.model or ""


def name_of(spec: str, project: Project) -> str:
    """Return a model's own name, without provider and settings; for an invalid one the text after the dot."""
    try:
        return parsed(spec, project).model_name
    except Exception:  # an invalid model is reported where it is used
        text = referred(spec, project).partition("?")[0]
        return text.partition(".")[2] if "." in text else text


def refusal(spec: str, project: Project) -> tuple[str, str] | None:
    """Return why fast-agent refuses a model name, and the fix; None if it takes the name."""
    try:
        parsed(spec, project)
    except Exception as error:  # also what its model overlays raise
        message = error.message if isinstance(error, ModelConfigError) else str(error)
        reason = one_line(message.partition("\n")[0].partition(". Model name parsed")[0], 200).rstrip(".")
        name = one_line(referred(spec, project), 200)
        if not name and spec:
            return _leads_nowhere(spec, project)
        if reason.startswith(_SUFFIX):
            model, _, effort = name.partition("?")[0].rpartition(".")
            return reason, f"write {model}?reasoning={effort}"
        return reason, _correction(name) if reason.startswith(_UNKNOWN) else ""
    return None


def has_key(provider: str, project: Project) -> bool:
    """Return whether fast-agent finds a key of a provider: in the settings, or where a tool has stored it."""
    try:
        return bool(ProviderKeyManager.get_optional_api_key(provider, dict(project.settings)))
    except Exception:  # a store that cannot be read
        return False


def max_output(model: str, capabilities: Capabilities | None) -> int | None:
    """Return how many tokens a model can write at once: by fast-agent, or by the agent's declaration.

    None if neither knows.
    """
    declared = _declared_output(capabilities)
    if not model or _ours(model):
        return declared
    known = ModelDatabase.get_max_output_tokens(model)
    if known is None or declared is None:
        return known if declared is None else declared
    return min(known, declared)


def window(model: str, capabilities: Capabilities | None) -> int:
    """Return a model's context window in tokens: by fast-agent, or by the agent's declaration."""
    declared = (capabilities or Capabilities()).context_window
    if not model or _ours(model):
        return declared
    known = ModelDatabase.get_context_window(model)
    if known is None:
        return declared
    # A default is no limit for a model that fast-agent knows.
    return known if declared == Capabilities().context_window else min(known, declared)


def apply_declared_window(agent: Any, capabilities: Capabilities | None) -> None:
    """Give an agent's model the window that the agent declares.

    fast-agent has one window per model name, and would shorten the history of every agent in this process
    to the smallest declared one.
    """
    llm = getattr(agent, "llm", None)
    usage, model = getattr(llm, "usage_accumulator", None), getattr(llm, "model_name", None)
    if usage is not None and model and _ours(model):
        usage.set_context_window_size((capabilities or Capabilities()).context_window)


def has_vision(model: str, capabilities: Capabilities | None) -> bool:
    """Return whether an agent's model accepts images: by fast-agent, else by the agent's declaration."""
    if not model:
        return False
    if _ours(model):
        return capabilities is not None and capabilities.vision
    return ModelDatabase.supports_mime(model, "image/png")


def providers_of(models: Iterable[str], project: Project) -> tuple[str, ...] | None:
    """Return the providers of model names in code; a name without one has the project's provider.

    None if one of them is unknown, so that it may have any provider.
    """
    found = set()
    for model in models:
        try:
            spec = parsed(model, project)
        except Exception:  # an invalid model is reported where it is used
            return None
        found.add(spec.provider.config_name)
    return tuple(sorted(found))


def specs_of(models: Iterable[str], project: Project) -> tuple[str, ...] | None:
    """Return model names in code as ``provider.model``; one without a name is the project's default.

    Without fast-agent's own models for tests; None if one of them is unknown.
    """
    found: dict[str, None] = {}
    for model in models:
        try:
            spec = parsed(model, project)
        except Exception:  # an invalid model is reported where it is used
            return None
        if spec.provider is not Provider.FAST_AGENT:
            found[f"{spec.provider.config_name}.{spec.model_name}"] = None
    return tuple(found)


def _declared_output(capabilities: Capabilities | None) -> int | None:
    """Return the declared value; the default is no limit of a model that was not declared."""
    if capabilities is None:
        return None
    output = capabilities.max_output_tokens
    return output if capabilities.output_declared or output != Capabilities().max_output_tokens else None


def _leads_nowhere(spec: str, project: Project) -> tuple[str, str]:
    """Return problem and fix for a reference that names no model where there is no default either."""
    name = one_line(spec, 100)
    group, _, key = name.removeprefix("$").partition(".")
    problem = f"{name} names no model: it is not under model_references, and there is no default_model"
    lines = f"model_references: {{{group}: {{{key}: PROVIDER.MODEL}}}}" if key else "$GROUP.NAME"
    return problem, f"write {lines} or default_model: into {project.model_where.file}"


def _correction(name: str) -> str:
    """Return what to write instead of a name that fast-agent refuses."""
    providers = [each.config_name for each in Provider]
    provider, dot, model = name.partition("?")[0].partition(".")
    if model and (other := _OTHER_NAMES.get(provider)) and provider != other:
        return f"write PROVIDER.MODEL, for example {other}.{model}"
    if model and (near := nearest(provider, providers, cutoff=0.75)):
        return f"did you mean {near}.{model}"
    if not dot and (alias := name.partition("?")[0].rstrip("0123456789")) in ModelFactory.MODEL_PRESETS:
        return f"did you mean {alias}"
    family = next((own for start, own in _FAMILIES.items() if name.startswith(start)), "generic")
    return f"write PROVIDER.MODEL, for example {family}.{name}"


def _ours(model: str) -> bool:
    known = ModelDatabase.get_model_params(model) is not None
    return not known or ModelDatabase.normalize_model_name(model) in ModelDatabase.list_runtime_models()
