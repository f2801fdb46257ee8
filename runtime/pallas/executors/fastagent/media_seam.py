"""Has an agent's model take what this agent declares for it: fast-agent knows models by name, in the process.

``tests/contract/test_media_seam.py`` fails when the wrapped code changes.
"""

from dataclasses import replace
from typing import Any

from fast_agent.llm.model_database import ModelDatabase

from pallas.config import Capabilities

from . import model_registry


def take_declared(agent: Any, capabilities: Capabilities | None) -> None:
    """Have the model of an agent take pictures only if the agent declares so.

    A model that fast-agent knows itself is left alone.
    """
    llm = getattr(agent, "llm", None)
    model = getattr(llm, "model_name", None)
    if llm is None or not model or model_registry.known(model):
        return
    sees = capabilities is not None and capabilities.vision
    kinds = ModelDatabase.QWEN_MULTIMODAL if sees else ModelDatabase.TEXT_ONLY
    spec = llm.resolved_model
    params = spec.model_params or ModelDatabase.get_model_params(model)
    if params is None or list(params.tokenizes) == list(kinds):
        return
    llm._resolved_model_spec = replace(spec, model_params=params.model_copy(update={"tokenizes": kinds}))
    for find in ("_local_filesystem_runtime", "_environment_filesystem_runtime"):
        runtime = found() if (found := getattr(agent, find, None)) is not None else None
        if runtime is not None:
            runtime.set_model_info(llm.model_info)
