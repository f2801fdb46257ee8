"""docs/troubleshooting.md starts from words that the program still says."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")


@cache
def sources() -> tuple[str, ...]:
    rooms = (ROOT / "runtime" / "pallas", ROOT / "pallas_tui")
    return tuple(path.read_text("utf-8") for room in rooms for path in room.rglob("*.py"))


def texts(source: str) -> Iterator[str]:
    """All texts in a module; what an f-string fills in is ``…``."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Constant(value=bytes(data)):
                yield data.decode(errors="replace")
            case ast.JoinedStr(values=values):
                yield "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in values)


@pytest.mark.slow
@pytest.mark.parametrize("quoted", re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE))
def test_each_text_is_one_of_the_program(quoted: str) -> None:
    start = " ".join(max(quoted.split("…"), key=len).split()[:2])
    likely = (source for source in sources() if start in source)
    assert any(quoted in text for source in likely for text in texts(source))


def test_parts_of_a_text_are_one_text() -> None:
    assert "port … is taken" in texts("x = f'port {n} is ' f'taken'")
    assert "port … is free" not in texts("x = f'port {n} is ' f'taken'")
