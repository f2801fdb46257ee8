"""The parts of fast-agent's models that are not its public API, for models without an agent.

A model object is made for each question, in 0.2 ms, and dropped after it: it keeps a history and counts,
and the text of one thread must not appear in another. ``tests/contract/test_llm_seam.py`` fails when one of
these parts changes.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from fast_agent.config import Settings
from fast_agent.context import Context
from fast_agent.llm.model_factory import ModelFactory
from fast_agent.types import RequestParams

from pallas.executors.fastagent import answers_seam, metered_calls, model_client_seam, retry_policy
from pallas.mcp_client import library_hooks

# Providers whose models keep a connection open between questions, unless this is turned off.
_LASTING: Final = frozenset({"codexresponses", "openresponses", "responses", "xai", "metaai"})


class ModelHolder:
    """Takes the place of an agent: ``llm`` is its model."""

    def __init__(self, llm: Any) -> None:
        self.llm = llm


def settings_with(
    settings: Mapping[str, Any], provider: str, own: Mapping[str, str], *, elsewhere: bool
) -> Settings:
    """Return a project's settings for one backend; ``own`` has its ``api_key`` and ``base_url`` if it has
    them.

    A backend at another address (``elsewhere``) than the provider in the project's files gets none of that
    provider's other settings: headers may be a credential, too.
    """
    found = {key: value for key, value in settings.items() if key != "mcp"}
    section = {} if elsewhere else dict(found.get(provider) or {})
    section.update({key: value for key, value in own.items() if value})
    if provider and (section or elsewhere):
        found[provider] = section
    return Settings(**found)


def maker_of(spec: str) -> tuple[Callable[..., Any], str]:
    """Return the factory for models of that name, and the provider that it means. Imports the provider's
    library.

    Raises fast-agent's own error for an invalid name.
    """
    make = ModelFactory.create_factory(spec)
    return make, str(ModelFactory.resolve_model_spec(spec).provider.config_name)


def model(
    make: Callable[..., Any], provider: str, settings: Settings, api_key: str | None, base_url: str | None
) -> Any:
    """Return a model that tries once, raises its failure, and knows no other key than this one."""
    library_hooks.install(answers_seam.HOOK)
    options: dict[str, Any] = {"transport": "sse"} if provider in _LASTING else {}
    if base_url:
        options["base_url"] = base_url
    if api_key:
        options["api_key"] = api_key
    llm = make(_Nobody(), request_params=RequestParams(), context=Context(config=settings), **options)
    if api_key:  # overrides a user's own definition of the model
        llm._init_api_key = api_key
    if base_url:
        llm._init_base_url = base_url
    llm.retry_count = 0
    retry_policy.set_failure_handler(llm, _raised)
    model_client_seam.install(llm)
    setattr(llm, metered_calls.RAISES, True)
    return llm


def counted(llm: Any) -> tuple[int | None, int | None]:
    """Return the tokens in and out of all requests to this model, as the provider counted them."""
    turns = llm.usage_accumulator.turns
    taken = [turn.prompt.total for turn in turns if turn.prompt.total is not None]
    given = [turn.completion.total for turn in turns if turn.completion.total is not None]
    return (sum(taken) if taken else None), (sum(given) if given else None)


class _Nobody:
    name = "handler"
    instruction = None


def _raised(error: Exception) -> None:
    """Raise the error rather than turn it into an answer."""
