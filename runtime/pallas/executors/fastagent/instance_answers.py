"""Which model of an instance answers a turn: the one that is asked for, or one that replaces it."""

from dataclasses import replace

from pallas.bounds.images import check_images
from pallas.config import AgentConfig, Project
from pallas.health.provider_endpoint import key_place

from ..base import ExecutorTurn, TurnResult
from . import model_registry
from .fastagent_faults import ProviderFault, fault_of
from .instance_turn import FastAgentInstance, generate
from .providers import AgentProviders, ProviderModel, refuse_model
from .providers_failover import HeardEvents, answered, with_id
from .run_progress import RunProgress


class InstanceAnswers:
    """The answers of one agent's instances, whose models ``providers`` names."""

    def __init__(self, project: Project, config: AgentConfig, providers: AgentProviders) -> None:
        self._project = project
        self._config = config
        self._providers = providers

    async def answer(
        self,
        instance: FastAgentInstance,
        turn: ExecutorTurn,
        model: str,
        progress: RunProgress,
        events: HeardEvents,
    ) -> TurnResult:
        """Answer a turn, with the current peers among the tools of the instance.

        ``model`` is the agent's own, for an instance without models of ``llms``. Raises Fault, and what the
        agent's code raises.
        """
        if (peers := instance.peers) is None:
            return await self._chosen(instance, turn, model, progress, events)
        await peers.refresh()
        progress.labels = peers.labels
        with peers.serving(turn, events.emit):
            return await self._chosen(instance, peers.spelled(turn), model, progress, events)

    async def _chosen(
        self,
        instance: FastAgentInstance,
        turn: ExecutorTurn,
        model: str,
        progress: RunProgress,
        events: HeardEvents,
    ) -> TurnResult:
        if instance.models is None:
            return await self._by_own_model(instance, turn, model, progress, events)

        async def by(turn: ExecutorTurn, requested: ProviderModel) -> TurnResult:
            check_images(
                turn.images,
                vision=model_registry.has_vision(requested.model, self._config.model_capabilities),
                model=requested.model,
            )
            turn = replace(turn, params=turn.params.over(requested.params))
            return await generate(self._config, instance, turn, requested.model, progress, events.emit)

        return await answered(self._providers, instance.models, turn, events, by)

    async def _by_own_model(
        self,
        instance: FastAgentInstance,
        turn: ExecutorTurn,
        model: str,
        progress: RunProgress,
        events: HeardEvents,
    ) -> TurnResult:
        provider = model_registry.provider_of(getattr(instance.agent, "llm", None))
        if turn.provider:
            self._providers.requested(turn.provider, "")
        if requested := turn.params.get("model"):
            refuse_model(requested, model, provider)
        try:
            return await generate(self._config, instance, turn, model, progress, events.emit)
        except Exception as error:
            fault = fault_of(error)
            if not isinstance(fault, ProviderFault):
                raise
            raise with_id(fault, provider, self._key_place(provider)) from error

    def _key_place(self, provider: str) -> str:
        llm = self._config.definition.llm if self._config.definition is not None else None
        if llm is not None and (llm.url or llm.api_key):
            return f"the key of LLM {llm.name}"
        return key_place(self._project, provider)
