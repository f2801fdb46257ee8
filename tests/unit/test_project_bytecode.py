"""Bytecode of a project's modules: an edit within a second is seen."""

import os
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from pallas.executors.project_importer import ProjectImporter, forget_project, modules_of


def number(root: Path) -> int:
    """What the module says, imported as by another process."""
    importer = ProjectImporter(root, "one")
    with importer.loading():
        found: int = importer.import_module("numbered").NUMBER
    for name in modules_of(root):
        del sys.modules[name]
    forget_project(root)
    return found


def test_an_edit_of_the_same_size_within_a_second_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    source, second = tmp_path / "numbered.py", 1_800_000_000 * 10**9
    source.write_text("NUMBER = 1\n")
    os.utime(source, ns=(second, second))
    assert number(tmp_path) == 1
    compiled = Path(cache_from_source(str(source)))
    assert compiled.exists()
    os.utime(compiled, ns=(second + 10**8, second + 10**8))
    source.write_text("NUMBER = 2\n")
    os.utime(source, ns=(second + 5 * 10**8, second + 5 * 10**8))
    assert number(tmp_path) == 2
