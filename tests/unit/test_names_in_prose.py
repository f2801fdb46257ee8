"""Names of our own modules in docstrings, comments and docs: each stands for something that is there."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
ROOTS = {"pallas": PROJECT / "runtime" / "pallas", "pallas_tui": PROJECT / "pallas_tui"}
NAME = re.compile(r"`((?:pallas|pallas_tui)(?:\.\w+)+)(?:\(\))?`")
# Loggers whose names are no module's, and the log's file.
LOGGERS = {"pallas.agents", "pallas.audit", "pallas.forward", "pallas.log", "pallas.servers", "pallas.stray"}


def prose_of(source: str) -> Iterator[str]:
    """The comments and docstrings of a module."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string[:3] == '"""'):
            yield token.string


@cache
def names_of(path: Path) -> frozenset[str]:
    """What a module defines or imports, at any depth."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.alias(asname=str(name)) | ast.alias(name=name):
                found.add(name)
    return frozenset(found)


def is_there(name: str) -> bool:
    """Whether a dotted name is a module of ours or something in one."""
    first, *rest = name.split(".")
    path = ROOTS[first]
    while rest and path.is_dir() and ((path / rest[0]).is_dir() or (path / f"{rest[0]}.py").is_file()):
        inner = path / rest.pop(0)
        path = inner if inner.is_dir() else inner.with_suffix(".py")
    return not rest or set(rest) <= names_of(path if path.is_file() else path / "__init__.py")


def dangling(text: str) -> list[str]:
    names = (match[1] for match in NAME.finditer(text))
    return [name for name in names if ".".join(name.split(".")[:2]) not in LOGGERS and not is_there(name)]


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("pallas.access.identity", True),
        ("pallas.config.load_project", True),
        ("pallas_tui.app.Workbench.remember_copied", True),
        ("pallas.identity", False),
        ("pallas.access.identity.nothing_of_it", False),
    ],
)
def test_a_name_is_found_where_it_is_defined(name: str, there: bool) -> None:
    assert is_there(name) is there
    assert dangling(f"see ``{name}`` and ``pallas.agents.NAME``") == ([] if there else [name])


def test_no_docstring_or_comment_names_a_module_that_is_not_there() -> None:
    files = [path for root in ROOTS.values() for path in root.rglob("*.py")]
    assert len(files) > 500
    found = [
        f"{path.relative_to(PROJECT)}: {name}"
        for path in files
        if "`pallas" in (source := path.read_text())
        for prose in prose_of(source)
        for name in dangling(prose)
    ]
    assert found == []


def test_no_page_names_a_module_that_is_not_there() -> None:
    pages = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *(PROJECT / "docs").glob("*.md")]
    assert [f"{page.name}: {name}" for page in pages for name in dangling(page.read_text())] == []
