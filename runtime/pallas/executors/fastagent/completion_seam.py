"""Every touch of fast-agent's models that is not its public API, where no agent holds them.

A model object is made for each question, in 0.2 ms, and let go of after it: it keeps a history and counts,
and what one thread says may not be there for another. ``tests/contract/test_llm_seam.py`` fails when a place
moves.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from fast_agent.config import Settings
from fast_agent.context import Context
from fast_agent.llm.model_factory import ModelFactory
from fast_agent.types import RequestParams

from pallas.executors.fastagent import answers_seam, retry_policy

# Providers whose models may keep a connection open between questions, unless they are told not to.
_LASTING: Final = frozenset({"codexresponses", "openresponses", "responses", "xai", "metaai"})


class ModelHolder:
    """Stands where an agent would: ``llm`` is its model."""

    def __init__(self, llm: Any) -> None:
        self.llm = llm


def settings_with(
    settings: Mapping[str, Any], provider: str, own: Mapping[str, str], *, elsewhere: bool
) -> Settings:
    """A project's settings for one backend; ``own`` are its ``api_key`` and ``base_url`` where it has them.

    One that is ``elsewhere`` than the provider of the project's files is told nothing else of what they say
    of that: headers may be a credential, too.
    """
    found = {key: value for key, value in settings.items() if key != "mcp"}
    section = {} if elsewhere else dict(found.get(provider) or {})
    section.update({key: value for key, value in own.items() if value})
    if provider and (section or elsewhere):
        found[provider] = section
    return Settings(**found)


def maker_of(spec: str) -> tuple[Callable[..., Any], str]:
    """What makes models of that name, and the provider that it means. Imports the provider's library.

    Raises what fast-agent has against the name.
    """
    make = ModelFactory.create_factory(spec)
    return make, str(ModelFactory.resolve_model_spec(spec).provider.config_name)


def model(
    make: Callable[..., Any], provider: str, settings: Settings, api_key: str | None, base_url: str | None
) -> Any:
    """A model that tries once, says what it failed with, and knows no other key than this one."""
    answers_seam.install()
    options: dict[str, Any] = {"transport": "sse"} if provider in _LASTING else {}
    if base_url:
        options["base_url"] = base_url
    if api_key:
        options["api_key"] = api_key
    llm = make(_Nobody(), request_params=RequestParams(), context=Context(config=settings), **options)
    if api_key:  # whatever a user's own definition of the model says
        llm._init_api_key = api_key
    if base_url:
        llm._init_base_url = base_url
    llm.retry_count = 0
    llm._handle_retry_failure = _raised
    retry_policy.single_requests(llm)
    return llm


def counted(llm: Any) -> tuple[int | None, int | None]:
    """Tokens in and out as the provider counted them, of all that this model was asked."""
    turns = llm.usage_accumulator.turns
    taken = [turn.prompt.total for turn in turns if turn.prompt.total is not None]
    given = [turn.completion.total for turn in turns if turn.completion.total is not None]
    return (sum(taken) if taken else None), (sum(given) if given else None)


class _Nobody:
    name = "handler"
    instruction = None


def _raised(error: Exception) -> None:
    """No answer is made of it: it is raised."""
