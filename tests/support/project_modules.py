"""The modules of a test's project in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pallas.executors.project_importer import modules_of
from pallas.executors.project_imports import forget
from pallas.model.module_name import plain_name


def module_at(root: Path, name: str) -> Any:
    """The module that the code of the project at ``root`` has imported by that name."""
    found = [module for key, module in modules_of(root).items() if plain_name(key) == name]
    assert found, f"the project has not imported {name}"
    return found[-1]


@contextmanager
def own_modules(root: Path) -> Iterator[None]:
    """Leave nothing of the project at ``root`` that is imported in this block without a fleet."""
    try:
        yield
    finally:
        forget(root)
