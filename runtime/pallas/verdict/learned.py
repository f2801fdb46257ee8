"""What a fork had to do that the next one need not: imports, models, recordings, questions to servers.

A fork says at its end what it did; the process that forked it does the same, and each later fork has it.
"""

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from .asked_cache import ASKED
from .recording_cache import cached_paths, read_cached

_PACKAGES: Final = frozenset(
    {"anthropic", "anyio", "fast_agent", "fastmcp", "google", "mcp", "mcp_types", "openai", "pallas"}
    | {"pydantic", "sqlalchemy", *sys.stdlib_module_names}
)
"""Packages whose modules start no thread when they are imported. Nothing of a project is imported."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The modules, the models as ``module:name``, the folders of recordings, and what servers offer."""

    modules: frozenset[str]
    models: frozenset[str]
    recordings: frozenset[str]
    offers: frozenset[str]

    @classmethod
    def now(cls) -> "Learned":
        """What this process has."""
        modules = frozenset(name for name in sys.modules if name.partition(".")[0] in _PACKAGES)
        models = frozenset(f"{each.__module__}:{each.__qualname__}" for each in _models() if _is_built(each))
        return cls(modules, models, frozenset(cached_paths()), ASKED.remembered())

    def since(self, before: "Learned") -> bytes:
        """What this has and ``before`` had not."""
        kinds = ("modules", "models", "recordings", "offers")
        return json.dumps([sorted(getattr(self, each) - getattr(before, each)) for each in kinds]).encode()


def learn(document: bytes) -> None:
    """Do what a fork says that it did; what cannot be done is left out."""
    with suppress(ValueError):
        modules, models, recordings, offers = json.loads(document)
        for name in modules:
            with suppress(Exception):
                importlib.import_module(name)
        wanted = frozenset(models)
        for each in list(_models()):
            if f"{each.__module__}:{each.__qualname__}" in wanted and not _is_built(each):
                with suppress(Exception):
                    each.model_rebuild()
        for path in recordings:
            with suppress(Exception):
                read_cached(Path(path))
        for text in offers:
            with suppress(Exception):
                ASKED.remember(text)


def _models() -> Iterator[type[BaseModel]]:
    waiting: list[type[BaseModel]] = [BaseModel]
    seen: set[type[Any]] = set()
    while waiting:
        for each in waiting.pop().__subclasses__():
            if each not in seen and each.__module__.partition(".")[0] in _PACKAGES:
                seen.add(each)
                waiting.append(each)
                yield each


def _is_built(model: type[BaseModel]) -> bool:
    return "__pydantic_validator__" in vars(model) and bool(model.__pydantic_complete__)
