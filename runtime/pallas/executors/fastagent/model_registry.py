"""Models that fast-agent does not know, registered with what the project declares or the defaults."""

from collections.abc import Iterable, Mapping
from typing import Any

from fast_agent.llm.model_database import ModelDatabase, ModelParameters
from fast_agent.llm.model_factory import ModelConfig, ModelFactory

from pallas.config import AgentConfig, Capabilities, Project


def register(model: str, capabilities: Capabilities) -> None:
    """Make ``model`` (no provider prefix) known to fast-agent; one it knows is left alone (PR-13).

    Agents may declare different capabilities for one name: fast-agent then sends pictures to it as soon
    as one of them has vision, and ``has_vision`` keeps the others' pictures out.
    """
    if not _ours(model):
        return
    before = ModelDatabase.get_model_params(model)
    vision = capabilities.vision or (before is not None and ModelDatabase.supports_mime(model, "image/png"))
    ModelDatabase.register_runtime_model_params(
        model,
        ModelParameters(
            context_window=capabilities.context_window,
            max_output_tokens=capabilities.max_output_tokens,
            tokenizes=ModelDatabase.QWEN_MULTIMODAL if vision else ModelDatabase.TEXT_ONLY,
        ),
    )


def declared(config: AgentConfig) -> Capabilities:
    """What an agent declares of its model, else the defaults."""
    return config.model_capabilities or Capabilities()


def known(model: str) -> bool:
    """Whether fast-agent itself knows a model, by its name without a provider."""
    return bool(model) and not _ours(model)


def provider_of(llm: Any) -> str:
    """What fast-agent calls the provider of a model object; empty where that is unknown."""
    return str(getattr(getattr(llm, "provider", None), "config_name", ""))


def parsed(spec: str, project: Project) -> ModelConfig:
    """A model as it is named in code or configuration. Raises what fast-agent has against it."""
    return ModelFactory.parse_model_string(_referred(spec, project))


def max_output(model: str, capabilities: Capabilities | None) -> int | None:
    """How many tokens a model can write at once: as fast-agent knows it, and as the agent declares.

    None where nobody can tell.
    """
    declared = _declared_output(capabilities)
    if not model or _ours(model):
        return declared
    known = ModelDatabase.get_max_output_tokens(model)
    if known is None or declared is None:
        return known if declared is None else declared
    return min(known, declared)


def window(model: str, capabilities: Capabilities | None) -> int:
    """How many tokens a model takes in at once: as fast-agent knows it, and as the agent declares."""
    declared = (capabilities or Capabilities()).context_window
    if not model or _ours(model):
        return declared
    known = ModelDatabase.get_context_window(model)
    if known is None:
        return declared
    # What was not written down is no limit of a model that is known better.
    return known if declared == Capabilities().context_window else min(known, declared)


def keep_to(agent: Any, capabilities: Capabilities | None) -> None:
    """Give an agent's model the window that the agent declares.

    fast-agent knows one window for a name, and would shorten the history of every agent in this process by
    the smallest that any of them declares.
    """
    llm = getattr(agent, "llm", None)
    usage, model = getattr(llm, "usage_accumulator", None), getattr(llm, "model_name", None)
    if usage is not None and model and _ours(model):
        usage.set_context_window_size((capabilities or Capabilities()).context_window)


def has_vision(model: str, capabilities: Capabilities | None) -> bool:
    """Whether an agent's model sees pictures: as fast-agent knows it, else as the agent declares."""
    if not model:
        return False
    if _ours(model):
        return capabilities is not None and capabilities.vision
    return ModelDatabase.supports_mime(model, "image/png")


def providers_of(models: Iterable[str], project: Project) -> tuple[str, ...] | None:
    """The providers behind models as they are named in code; one that names none has the project's.

    None where one of them is not known, and so may have any.
    """
    default = f"{project.provider}.{project.model}" if project.provider else project.model
    found = set()
    for model in models:
        try:
            spec = parsed(model, project) if model else ModelFactory.parse_model_string(default)
        except Exception:  # whatever is wrong with a model is told by whoever needs it
            return None
        found.add(spec.provider.config_name)
    return tuple(sorted(found))


def _declared_output(capabilities: Capabilities | None) -> int | None:
    """What was written down; the default is no limit of a model that nobody has declared."""
    if capabilities is None:
        return None
    output = capabilities.max_output_tokens
    return output if capabilities.output_declared or output != Capabilities().max_output_tokens else None


def _referred(model: str, project: Project) -> str:
    """``$group.name`` as ``model_references`` has it; any other text as it is."""
    if not model.startswith("$"):
        return model
    group, _, name = model[1:].partition(".")
    references = project.settings.get("model_references")
    inner = references.get(group) if isinstance(references, Mapping) else None
    return str(inner.get(name, model)) if isinstance(inner, Mapping) else model


def _ours(model: str) -> bool:
    known = ModelDatabase.get_model_params(model) is not None
    return not known or ModelDatabase.normalize_model_name(model) in ModelDatabase.list_runtime_models()
