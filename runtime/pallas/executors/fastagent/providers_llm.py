"""The model objects of one instance's agent, one for each model that was used; all share its history.

fast-agent gives an agent one model. ``attach_llm`` makes another, which is kept; the agent has it for the
duration of a turn, and then its own again. ``tests/contract/test_providers_seam.py`` fails when the code
below changes.
"""

import inspect
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from fast_agent.core.model_resolution import get_context_model_references, resolve_model_reference
from fast_agent.llm.model_factory import ModelFactory
from fast_agent.types import RequestParams

from .providers import AgentProviders, ProviderModel
from .retry_policy import failure_handler, set_failure_handler

log = logging.getLogger(__name__)

_OPTIONS: Final = "_llm_attach_kwargs"
_STATE: Final = ("_llm", "_llm_factory_ref", _OPTIONS)


@dataclass(slots=True)
class _Attached:
    """One model of an agent, with the state that ``attach_llm`` leaves there."""

    llm: Any
    state: Mapping[str, Any]
    retries: int

    @classmethod
    def of(cls, agent: Any) -> "_Attached":
        """Return what the agent has now."""
        state = {name: getattr(agent, name) for name in _STATE}
        return cls(agent.llm, state, getattr(agent.llm, "retry_count", 0))

    @property
    def options(self) -> dict[str, Any]:
        """A copy of the arguments of ``attach_llm``."""
        return dict(self.state[_OPTIONS] or {})


def answer_with(harness: Any, name: str, providers: AgentProviders) -> None:
    """Make the agent ``name`` of a harness that was entered use the default provider's model.

    The model that its code or the project names is then not needed, and not validated.
    """
    runtime: Any = harness._runtime
    make = runtime.model_factory_func

    def model_factory(model: Any = None, request_params: Any = None) -> Any:
        def factory(agent: Any, **options: Any) -> Any:
            if agent.name == name:
                return _factory(providers.default.spec, agent, model)(agent, **options)
            return make(model=model, request_params=request_params)(agent, **options)

        return factory

    runtime.model_factory_func = model_factory


class Models:
    """The models that one agent was given so far; ``prepare`` sets up each of them."""

    def __init__(self, agent: Any, providers: AgentProviders, prepare: Callable[[Any], None]) -> None:
        self._agent = agent
        self._prepare = prepare
        self._named = agent.config.model
        self._home = _Attached.of(agent)
        self._known = {providers.default.spec: self._home}

    @asynccontextmanager
    async def answering(self, requested: ProviderModel, *, patient: bool) -> AsyncIterator[None]:
        """Give the agent this model until the block ends. Raises any error of making it.

        Unless ``patient``, a failed request is not retried: another provider is waiting.
        """
        try:
            attached = self._known.get(requested.spec)
            if attached is None:
                attached = self._known[requested.spec] = await self._made(requested.spec)
            self._put(attached)
            attached.llm.retry_count = attached.retries if patient else 0
            yield
        finally:
            self._put(self._home)

    async def close(self) -> None:
        """Close the models; the agent's own is closed with the agent."""
        others = [each.llm for each in self._known.values() if each is not self._home]
        self._known.clear()
        for llm in others:
            try:
                closed = llm.close() if hasattr(llm, "close") else None
                if inspect.isawaitable(closed):
                    await closed
            except Exception:
                log.debug("a model could not be released", exc_info=True)

    async def _made(self, spec: str) -> _Attached:
        options = self._home.options
        given = deepcopy(options.pop("request_params", None))
        await self._agent.attach_llm(
            _factory(spec, self._agent, self._named), request_params=given, **options
        )
        self._prepare(self._agent)
        return _Attached.of(self._agent)

    def _put(self, attached: _Attached) -> None:
        agent: Any = self._agent
        if agent.llm is attached.llm:
            return
        home_llm = self._home.llm
        attached.llm.instruction = home_llm.instruction
        attached.llm.default_request_params.system_prompt = home_llm.default_request_params.system_prompt
        for name, value in attached.state.items():
            setattr(agent, name, value)
        agent._on_llm_attached(attached.llm)  # tools that one model is shown differently


def note_failures(agent: Any) -> None:
    """Remember the exception behind an answer that reports a failed model call."""
    llm = getattr(agent, "llm", None)
    handle = failure_handler(llm)
    if llm is not None and handle is not None and not isinstance(handle, _Noting):
        set_failure_handler(llm, _Noting(handle))


def failure_of(agent: Any) -> BaseException | None:
    """Return the exception that was remembered last and forget it."""
    noted = failure_handler(getattr(agent, "llm", None))
    if not isinstance(noted, _Noting):
        return None
    last, noted.last = noted.last, None
    return last


class _Noting:
    def __init__(self, handle: Callable[[Exception], Any]) -> None:
        self._handle = handle
        self.last: Exception | None = None

    def __call__(self, error: Exception) -> Any:
        self.last = error
        return self._handle(error)


def _factory(spec: str, agent: Any, named: Any) -> Callable[..., Any]:
    """Return the factory of the model ``spec`` for an agent whose code names another one."""
    references = get_context_model_references(agent.context)
    found = resolve_model_reference(spec, references)
    resolved = ModelFactory.resolve_model_spec(found)
    make = ModelFactory.create_factory(found)
    provider = resolved.model_config.provider

    def factory(agent: Any, request_params: RequestParams | None = None, **options: Any) -> Any:
        params = request_params or RequestParams()
        if options.get("api_key") and not _of(named, references, provider):
            options["api_key"] = None  # the default of the provider that the code names
        wanted = params.model_copy(update={"model": resolved.wire_model_name})
        return make(agent, request_params=wanted, **options)

    return factory


def _of(named: Any, references: Any, provider: Any) -> bool:
    try:
        model = resolve_model_reference(str(named or ""), references)
        return bool(model) and ModelFactory.parse_model_string(model).provider is provider
    except Exception:  # it belongs to another provider
        return False
