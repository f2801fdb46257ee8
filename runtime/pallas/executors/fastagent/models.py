"""Models that fast-agent does not know, registered with the capabilities the project declares."""

from fast_agent.llm.model_database import ModelDatabase, ModelParameters

from pallas.config import Capabilities


def register(model: str, capabilities: Capabilities) -> None:
    """Make ``model`` (no provider prefix) known to fast-agent; one it knows is left alone (PR-13)."""
    known = ModelDatabase.get_model_params(model)
    if known is not None and model not in ModelDatabase.list_runtime_models():
        return
    ModelDatabase.register_runtime_model_params(
        model,
        ModelParameters(
            context_window=capabilities.context_window,
            max_output_tokens=capabilities.max_output_tokens,
            tokenizes=ModelDatabase.QWEN_MULTIMODAL if capabilities.vision else ModelDatabase.TEXT_ONLY,
        ),
    )


def has_vision(model: str) -> bool:
    """Whether fast-agent would send this model a picture, and not drop it silently."""
    return ModelDatabase.supports_mime(model, "image/png")
