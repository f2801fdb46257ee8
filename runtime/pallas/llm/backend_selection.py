"""Choose the backends for a model, and their order (HC-27, HC-28, HC-30)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final

from pallas.config import Project
from pallas.config.kinds import BackendConfig, LlmStrategy
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

from .backend import Backend

DEFAULT: Final = "default"
"""The id of the only backend of a project that lists none."""
ANY_MODEL: Final = "*"

# The models of a backend that does not list any: by the beginning of their names.
_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "openai": ("gpt", "o1", "o3", "o4", "chatgpt"),
    "responses": ("gpt", "o1", "o3", "o4", "chatgpt"),
    "anthropic": ("claude",),
    "anthropic-vertex": ("claude",),
    "xai": ("grok",),
    "google": ("gemini", "gemma"),
    "googleoai": ("gemini", "gemma"),
    "deepseek": ("deepseek",),
    "moonshot": ("kimi", "moonshot"),
    "zai": ("glm",),
}
_SHOWN: Final = 20


def prefixes_of(config: BackendConfig) -> tuple[str, ...]:
    """Return the prefixes of the model names that a backend answers."""
    return config.supported_models or _FAMILIES.get(config.provider, (ANY_MODEL,))


def backends_of(project: Project) -> tuple[BackendConfig, ...]:
    """Return the project's backends; without any, one that serves only its ``default_model``."""
    if project.llm.backends:
        return project.llm.backends
    if not project.model:
        return ()
    return (
        BackendConfig(
            id=DEFAULT, provider=project.provider, supported_models=(project.model,), rate_limit_tpm=0
        ),
    )


class Selection:
    """The backends of a project, in the order of its file."""

    def __init__(self, project: Project, backends: Sequence[Backend]) -> None:
        self._project = project
        self._backends = tuple(backends)
        self._turns: dict[tuple[str, ...], Iterator[int]] = {}

    @property
    def backends(self) -> tuple[Backend, ...]:
        """All of them."""
        return self._backends

    def answering(self, model: str) -> tuple[str, tuple[Backend, ...]]:
        """Return a model's name without its provider, and the backends that serve it, by priority.

        An empty name is the project's ``default_model``. A provider before the name (``openai.gpt-5``)
        restricts the result to that provider. Raises Fault (CONFIG) that lists the backends with their
        models.
        """
        wanted = model.strip() or self._own()
        provider, _, rest = wanted.partition(".")
        named = [each for each in self._backends if rest and provider in (each.id, each.config.provider)]
        if named:
            wanted = rest
        found = [each for each in named or self._backends if self._fits(each, wanted)]
        if not found:
            raise self._unknown(model or self._own())
        return wanted, tuple(sorted(found, key=lambda each: each.config.priority))

    def order(self, backends: Sequence[Backend], strategy: LlmStrategy) -> tuple[Backend, ...]:
        """Return the order in which to ask: by the strategy, with recently failed backends last."""
        ordered = list(backends)
        if strategy == "round-robin":
            turns = self._turns.setdefault(tuple(each.id for each in backends), count())
            first = next(turns) % len(ordered)
            ordered = ordered[first:] + ordered[:first]
        elif strategy == "least-loaded":
            ordered.sort(key=lambda each: each.load)
        failing: Callable[[Backend], bool] = lambda each: each.failing  # noqa: E731
        return tuple(sorted(ordered, key=failing))

    def _own(self) -> str:
        own = self._project.model
        if not own:
            raise Fault(
                FaultType.CONFIG,
                "complete(): no model is named, and the project has no default_model; name one of a backend "
                f"({self._listed()}), or set default_model",
            )
        return own

    def _fits(self, backend: Backend, model: str) -> bool:
        config = backend.config
        if not self._project.llm.backends:  # The project's own model, by its whole name.
            return model == self._project.model
        return any(model.startswith(prefix.rstrip(ANY_MODEL)) for prefix in prefixes_of(config))

    def _unknown(self, model: str) -> Fault:
        hint = "correct the name, or add it to supported_models of a backend under llm.backends"
        if not self._project.llm.backends:
            hint = "leave it out for the project's own, or add llm.backends to agents.yaml"
        return Fault(
            FaultType.CONFIG,
            f"complete(): no backend answers for model {one_line(repr(model), 100)}; there are: "
            f"{self._listed()}; {hint}",
            data={"backends": [each.id for each in self._backends][:_SHOWN]},
        )

    def _listed(self) -> str:
        shown = [f"{each.id} ({', '.join(prefixes_of(each.config))})" for each in self._backends[:_SHOWN]]
        more = len(self._backends) - len(shown)
        return ("; ".join(shown) or "none") + (f" and {more} more" if more > 0 else "")
