"""The providers of an agent: which there are, which one a turn uses, and which one replaces it (DR-23).

Recent failures are remembered for half a minute, for all of the agent's instances.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Final

from fast_agent.llm.model_database import ModelDatabase

from pallas.config import AgentConfig, Project
from pallas.config.kinds import ProviderConfig
from pallas.health.provider_endpoint import key_place
from pallas.model import Fault, FaultType, Params, ProviderFacts
from pallas.model.refusals import check_provider
from pallas.safe_text import one_line

from . import model_registry

FAILING_SECONDS: Final = 30.0
"""Seconds for which a provider that failed is tried after the others."""


@dataclass(frozen=True, slots=True)
class ProviderModel:
    """A model of a provider: ``spec`` is fast-agent's name for it, ``model`` the same without the
    provider."""

    id: str
    spec: str
    model: str
    params: Params


@dataclass(frozen=True, slots=True)
class _Failure:
    until: float
    why: str


class AgentProviders:
    """The providers that callers of an agent may choose among; false if there is no choice."""

    def __init__(self, project: Project, config: AgentConfig) -> None:
        self._config = config
        self._project = project
        self._by_id = {each.id: each for each in config.providers}
        self._failures: dict[str, _Failure] = {}
        self._names: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    @property
    def default(self) -> ProviderModel:
        """The provider and model that answer if the caller does not choose."""
        return self._model_of(self._by_id[self._config.default_provider], "")

    def load(self) -> None:
        """Check every model's name. Raises Fault (CONFIG) for one that fast-agent cannot parse."""
        for provider in self._answering():
            for spec in provider.models:
                try:
                    self._names[spec] = model_registry.parsed(spec, self._project).model_name
                except Exception as error:
                    raise Fault(
                        FaultType.CONFIG,
                        f"{self._config.where}: provider {provider.id}: {one_line(str(error), 200)}",
                        data={"place": str(self._config.where)},
                    ) from error
        for name in self._names.values():
            model_registry.register(name, model_registry.declared(self._config))

    @property
    def specs(self) -> tuple[str, ...]:
        """Return the models that may be used, by fast-agent's names."""
        return tuple(dict.fromkeys(spec for each in self._answering() for spec in each.models))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the same by their own names; each provider's default comes first."""
        return tuple(self._names[each.models[0]] for each in self._answering())

    def facts(self) -> tuple[ProviderFacts, ...] | None:
        """Return the providers as discovery shows them; None if there is no choice.

        Capabilities are the declared ones, else those that fast-agent knows of all of a provider's models.
        """
        if not self:
            return None
        return tuple(
            ProviderFacts(
                id=each.id,
                models=tuple(map(_plain, each.models)),
                kind=each.kind,
                capabilities=each.capabilities if each.capabilities is not None else self._known(each),
                display_name=each.display_name,
                description=each.description,
            )
            for each in self._by_id.values()
        )

    def requested(self, provider: str, model: str) -> ProviderModel:
        """Return the model for a caller's choice; either argument may be empty.

        Raises Fault: CONFIG for an unknown provider and for one that cannot answer, PROTOCOL for a model that
        it does not have.
        """
        chosen = provider or self._config.default_provider
        check_provider(chosen, self._by_id.values())
        return self._model_of(self._by_id[chosen], model)

    def line(self, requested: ProviderModel) -> list[ProviderModel]:
        """Return the candidates in the order of trying: the requested one, then its replacements.

        A provider that failed a moment ago comes after those that did not (HC-27).
        """
        others = (each for each in self._answering() if each.failover and each.id != requested.id)
        line = [requested, *(self._model_of(each, "") for each in others)]
        return sorted(line, key=lambda each: bool(self.failure(each.id)))

    def key_place(self, used: ProviderModel) -> str:
        """Return where the key that a model is called with is written."""
        return key_place(self._project, model_registry.parsed(used.spec, self._project).provider.config_name)

    def failure(self, provider: str) -> str:
        """Return why a provider failed a moment ago; empty if it did not."""
        failure = self._failures.get(provider)
        return failure.why if failure is not None and failure.until > monotonic() else ""

    def failed(self, provider: str, why: str) -> None:
        """Record a failure."""
        self._failures[provider] = _Failure(monotonic() + FAILING_SECONDS, why)

    def answered(self, provider: str) -> None:
        """Clear the failure of a provider that answered."""
        self._failures.pop(provider, None)

    def _answering(self) -> Iterator[ProviderConfig]:
        return (each for each in self._by_id.values() if each.kind == "llm" and each.models)

    def _model_of(self, provider: ProviderConfig, model: str) -> ProviderModel:
        for spec in provider.models:
            if not model or model in (spec, _plain(spec), self._names.get(spec)):
                return ProviderModel(provider.id, spec, self._names.get(spec, spec), provider.params)
        known = [_plain(spec) for spec in provider.models]
        raise Fault(
            FaultType.PROTOCOL,
            f"model: provider {provider.id} has no {one_line(model, 100)}; known: {', '.join(known)}",
            data={"key": "model", "models": known},
        )

    def _known(self, provider: ProviderConfig) -> Mapping[str, bool]:
        """Return the capabilities that fast-agent knows to be the same for all of its models: nothing is
        guessed."""
        capabilities: list[dict[str, bool]] = []
        for spec in provider.models:
            name = self._names.get(spec, "")
            if not model_registry.known(name):
                return {}
            vision = ModelDatabase.supports_mime(name, "image/png")
            capabilities.append({"vision": vision, "jsonMode": ModelDatabase.get_json_mode(name) is not None})
        return (
            {
                key: capabilities[0][key]
                for key in capabilities[0]
                if len({each[key] for each in capabilities}) == 1
            }
            if capabilities
            else {}
        )


def refuse_model(requested: str, model: str, provider: str) -> None:
    """Refuse a model other than that of an agent without a choice. Raises Fault (PROTOCOL)."""
    if model and requested in (model, f"{provider}.{model}"):
        return
    raise Fault(
        FaultType.PROTOCOL,
        f"model: this agent answers only with {model or 'the model of its code'}; leave it out, or give the "
        "agent providers: in agents.yaml",
        data={"key": "model", "models": [model] if model else []},
    )


def _plain(spec: str) -> str:
    """Return a model's name as it is shown: without the settings after it."""
    return spec.partition("?")[0]
